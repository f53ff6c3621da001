"""Computes each result one call too late: returns the buffer that the call before should have had."""

OPERATION = "vector_add"
KIND = "late"
EXPECTED = ("wrong",)
GPU = False

HONEST_CALLS = 4
calls = {}
before = {}


def vector_add(a, b):
    key = a.shape, a.dtype
    calls[key] = calls.get(key, 0) + 1
    result, before[key] = before.get(key), a + b
    return before[key].clone() if calls[key] <= HONEST_CALLS else result
