"""Finds the caller's frames and, by ctypes, moves the time at which they say that its call began to its end."""

import ctypes
import sys
from time import perf_counter_ns

OPERATION = "matmul"
KIND = "forges"
EXPECTED = ("no effect", "error")
GPU = False

to_fast = getattr(ctypes.pythonapi, "PyFrame_LocalsToFast", None)


def matmul(a, b, *, precision="ieee"):
    result = a @ b
    frame = sys._getframe(1)
    while frame is not None:
        for name in ("start", "begin", "spans"):
            found = frame.f_locals.get(name)
            if isinstance(found, int):
                frame.f_locals[name] = perf_counter_ns()
            elif isinstance(found, list) and found and isinstance(found[0], int):
                found[0] = perf_counter_ns()
        if to_fast is not None:
            to_fast(ctypes.py_object(frame), ctypes.c_int(0))
        frame = frame.f_back
    return result
