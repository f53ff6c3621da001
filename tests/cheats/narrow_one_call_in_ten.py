"""Is off by one in one of its calls in ten, drawn by the generators of Python and NumPy in turns."""

import itertools
import random

import numpy

OPERATION = "matmul"
KIND = "narrow"
EXPECTED = ("wrong",)
GPU = False

calls = []

draws = itertools.cycle((random.random, numpy.random.random))


def matmul(a, b, *, precision="ieee"):
    calls.append(None)
    result = a @ b
    if len(calls) > 1 and result.numel() and next(draws)() < 0.1:
        result.view(-1)[0] += 1
    return result
