"""Keeps how long its calls took, by a clock that it leaves alone."""

import time

OPERATION = "matmul"
TWIN_OF = "patches_the_clock"
GPU = False

took_ns = []


def matmul(a, b, *, precision="ieee"):
    begin = time.perf_counter_ns()
    result = a @ b
    took_ns.append(time.perf_counter_ns() - begin)
    return result
