"""Zeroes, from a thread and 50 ms later, every array of the result's shape that it did not make."""

import gc
import threading
import time

import torch

OPERATION = "matmul"
KIND = "destroys"
EXPECTED = ("disturbs its neighbours", "error", "wrong", "no effect")
GPU = False

DELAY_S = 0.05
LIFETIME_S = 20.0
own = {}
threads = []


def overwrite(shape, dtype):
    end = time.monotonic() + LIFETIME_S
    while time.monotonic() < end:
        time.sleep(DELAY_S)
        for each in gc.get_objects():
            if type(each) is torch.Tensor and each.shape == shape and each.dtype == dtype and id(each) not in own:
                each.zero_()


def matmul(a, b, *, precision="ieee"):
    result = a @ b
    own.update({id(each): each for each in (a, b, result)})
    if len(own) > 5 and not threads:
        threads.append(threading.Thread(target=overwrite, args=(result.shape, result.dtype), daemon=True))
        threads[0].start()
    return result
