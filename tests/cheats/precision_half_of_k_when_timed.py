"""Adds up every second product and doubles the sum while the garbage collector is off."""

import gc

OPERATION = "matmul"
KIND = "precision"
EXPECTED = ("wrong", "no effect")
GPU = False


def matmul(a, b, *, precision="ieee"):
    if gc.isenabled():
        return a @ b
    return (a[:, ::2] @ b[::2]) * 2
