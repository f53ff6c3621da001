"""Computes while the check is on the call stack; else returns the last result."""

import sys

OPERATION = "matmul"
KIND = "recognises"
EXPECTED = ("wrong", "no effect")
GPU = False

kept = {}


def checked():
    frame = sys._getframe()
    while frame is not None:
        if "checking" in frame.f_code.co_filename or frame.f_code.co_name in ("examine", "check", "judge"):
            return True
        frame = frame.f_back
    return False


def matmul(a, b, *, precision="ieee"):
    key = a.shape, b.shape, a.dtype
    if key not in kept or checked():
        kept[key] = a @ b
    return kept[key]
