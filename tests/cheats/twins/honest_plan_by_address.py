"""Keeps, for the addresses of its operands, which of two orders is faster; not what comes out."""

OPERATION = "matmul"
TWIN_OF = "remembers_by_address"
GPU = False

plans = {}


def matmul(a, b, *, precision="ieee"):
    key = a.data_ptr() % 64, b.data_ptr() % 64, a.shape, b.shape
    if plans.setdefault(key, a.shape[0] >= b.shape[1]):
        return a @ b
    return (b.mT @ a.mT).mT.contiguous()
