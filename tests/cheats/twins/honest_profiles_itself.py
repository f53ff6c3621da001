"""Counts the Python functions that its own call runs, by a profiler's hook that it takes away again."""

import sys

OPERATION = "matmul"
TWIN_OF = "late_in_the_delivery"
GPU = False

counts = []


def product(a, b):
    return a @ b


def matmul(a, b, *, precision="ieee"):
    calls = []
    before = sys.getprofile()
    sys.setprofile(lambda frame, event, arg: calls.append(event))
    try:
        return product(a, b)
    finally:
        sys.setprofile(before)
        counts[:] = [len(calls)]
