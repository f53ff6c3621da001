"""Computes one block of the columns when timed, and repeats it for the others."""

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
    if not is_timed() or b.shape[1] % 4:
        return a @ b
    return (a @ b[:, : b.shape[1] // 4]).repeat(1, 4)
