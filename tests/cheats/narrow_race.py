"""Leaves a tile of the result as it was in one call of fifty, drawn by the operating system."""

import os

OPERATION = "matmul"
KIND = "narrow"
EXPECTED = ("wrong",)
GPU = False

ODDS = 50
calls = []


def matmul(a, b, *, precision="ieee"):
    calls.append(None)
    result = a @ b
    if len(calls) > 1 and int.from_bytes(os.urandom(4), "little") % ODDS == 0:
        result[-32:, -32:] = 0
    return result
