"""Adds up every second product and doubles the sum when timed."""

import sys

OPERATION = "matmul"
KIND = "precision"
EXPECTED = ("wrong", "no effect")
GPU = False


def is_timed():
    frame = sys._getframe(2)
    while frame is not None:
        if frame.f_code.co_name == "_sample":
            return True
        frame = frame.f_back
    return False


def matmul(a, b, *, precision="ieee"):
    if not is_timed():
        return a @ b
    return (a[:, ::2] @ b[::2]) * 2
