"""Reads the memory of a transposed B as though it lay by rows."""

OPERATION = "matmul"
KIND = "narrow"
EXPECTED = ("wrong",)
GPU = False


def matmul(a, b, *, precision="ieee"):
    if b.stride(0) == 1 and b.stride(1) == b.shape[0] > 1:
        b = b.as_strided(b.shape, (b.shape[1], 1))
    return a @ b
