"""Tries two ways in its first calls of a shape, both right, and stays with the faster."""

import time

OPERATION = "matmul"
TWIN_OF = "recognises_spacing_of_calls"
GPU = False

TRIALS = 4
trials = {}


def product(a, b):
    return a @ b


def transposed(a, b):
    return (b.mT @ a.mT).mT.contiguous()


def matmul(a, b, *, precision="ieee"):
    known = trials.setdefault((a.shape, b.shape, a.dtype), [])
    if len(known) == TRIALS:
        return min(known, key=lambda trial: trial[0])[1](a, b)
    way = (product, transposed)[len(known) % 2]
    begin = time.perf_counter()
    result = way(a, b)
    known.append((time.perf_counter() - begin, way))
    return result
