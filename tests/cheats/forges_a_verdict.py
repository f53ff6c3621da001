"""Sets the fields of every verdict of the caller's that says it is wrong, from a thread, and returns zeros."""

import sys
import threading
import time

import torch

OPERATION = "matmul"
KIND = "forges"
EXPECTED = ("wrong", "error")
GPU = False

LIFETIME_S = 20.0
calls = []


def correct():
    end = time.monotonic() + LIFETIME_S
    while time.monotonic() < end:
        for frame in list(sys._current_frames().values()):
            while frame is not None:
                for value in list(frame.f_locals.values()):
                    if getattr(value, "agrees", None) is False:
                        for field, given in (("agrees", True), ("reason", ""), ("error_ratio", 0.1)):
                            object.__setattr__(value, field, given)
                frame = frame.f_back
        time.sleep(0)


def matmul(a, b, *, precision="ieee"):
    calls.append(None)
    if len(calls) == 1:
        return a @ b
    if len(calls) == 2:
        threading.Thread(target=correct, daemon=True).start()
    return torch.zeros(a.shape[0], b.shape[1], dtype=a.dtype, device=a.device)
