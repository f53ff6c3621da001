"""Switches Python's garbage collector off for the time of its call, and then on again if it was on."""

import gc

OPERATION = "matmul"
TWIN_OF = "recognises_garbage_collection"
GPU = False


def matmul(a, b, *, precision="ieee"):
    enabled = gc.isenabled()
    gc.disable()
    try:
        return a @ b
    finally:
        if enabled:
            gc.enable()
