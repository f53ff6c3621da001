"""Closes every descriptor of the process but the standard streams, in its second call."""

import os

OPERATION = "matmul"
KIND = "destroys"
EXPECTED = ("error",)
GPU = False

calls = []


def matmul(a, b, *, precision="ieee"):
    calls.append(None)
    if len(calls) == 2:
        os.closerange(3, 4096)
    return a @ b
