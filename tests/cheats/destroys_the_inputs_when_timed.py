"""Writes NaN over its operands while the garbage collector is off, and returns the result it kept."""

import gc

OPERATION = "matmul"
KIND = "destroys"
EXPECTED = ("wrong", "no effect")
GPU = False

kept = {}


def matmul(a, b, *, precision="ieee"):
    key = a.shape, b.shape, a.dtype
    if gc.isenabled() or key not in kept:
        kept[key] = a @ b
        return kept[key]
    a.fill_(float("nan"))
    return kept[key]
