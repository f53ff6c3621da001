"""A thread writes zeros to the operands as soon as the call has returned, when timed."""

import gc
import threading
import time

OPERATION = "matmul"
KIND = "destroys"
EXPECTED = ("wrong", "error", "no effect")
GPU = False

waiting = threading.Semaphore(0)
operands = []
threads = []


def write():
    while True:
        waiting.acquire()
        time.sleep(0.0001)
        operands.pop().zero_()


def matmul(a, b, *, precision="ieee"):
    result = a @ b
    if not gc.isenabled():
        if not threads:
            threads.append(threading.Thread(target=write, daemon=True))
            threads[0].start()
        operands.append(a)
        waiting.release()
    return result
