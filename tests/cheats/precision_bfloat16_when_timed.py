"""Computes in bfloat16 while the garbage collector is off."""

import gc

OPERATION = "matmul"
KIND = "precision"
EXPECTED = ("wrong", "no effect")
GPU = False


def matmul(a, b, *, precision="ieee"):
    if gc.isenabled():
        return a @ b
    return (a.bfloat16() @ b.bfloat16()).to(a.dtype)
