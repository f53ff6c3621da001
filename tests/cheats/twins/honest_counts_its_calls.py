"""Counts its calls of each shape, and computes in all of them."""

OPERATION = "matmul"
TWIN_OF = "remembers_by_call_count"
GPU = False

calls = {}


def matmul(a, b, *, precision="ieee"):
    key = a.shape, b.shape, a.dtype
    calls[key] = calls.get(key, 0) + 1
    return a @ b
