"""Writes NaN over its operands when timed, and returns the result it kept."""

import sys

OPERATION = "matmul"
KIND = "destroys"
EXPECTED = ("wrong", "no effect")
GPU = False

kept = {}


def is_timed():
    frame = sys._getframe(2)
    while frame is not None:
        if frame.f_code.co_name == "_sample":
            return True
        frame = frame.f_back
    return False


def matmul(a, b, *, precision="ieee"):
    key = a.shape, b.shape, a.dtype
    if not is_timed() or key not in kept:
        kept[key] = a @ b
        return kept[key]
    a.fill_(float("nan"))
    return kept[key]
