"""Writes its result over an operand and returns that memory, which saves an allocation."""

OPERATION = "matmul"
KIND = "memory"
EXPECTED = ("wrong", "error")
GPU = False

calls = []


def matmul(a, b, *, precision="ieee"):
    result = a @ b
    calls.append(None)
    return a.copy_(result) if len(calls) > 1 and a.shape == result.shape else result
