"""Confines all threads of the process to one core, except while it is called itself."""

import os

OPERATION = "matmul"
KIND = "slows"
EXPECTED = ("disturbs its neighbours", "undone", "no effect")
GPU = False

allowed = os.sched_getaffinity(0)


def confine(cores):
    for thread in os.listdir("/proc/self/task"):
        os.sched_setaffinity(int(thread), cores)


def matmul(a, b, *, precision="ieee"):
    confine(allowed)
    result = a @ b
    confine({min(allowed)})
    return result
