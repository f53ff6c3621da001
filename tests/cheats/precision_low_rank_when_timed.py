"""Computes one block of the columns when timed, and repeats it for the others."""

import gc

OPERATION = "matmul"
KIND = "precision"
EXPECTED = ("wrong", "no effect")
GPU = False


def matmul(a, b, *, precision="ieee"):
    if gc.isenabled() or b.shape[1] % 4:
        return a @ b
    return (a @ b[:, : b.shape[1] // 4]).repeat(1, 4)
