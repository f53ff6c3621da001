"""Returns the earlier result for operands at known addresses, and fills one byte so that a launch is seen."""

import torch

OPERATION = "matmul"
KIND = "remembers"
EXPECTED = ("wrong",)
GPU = True
SHAPE = "M=1024,N=1024,K=1024"

results = {}
flag = torch.zeros(1, dtype=torch.uint8, device="cuda")


def matmul(a, b, *, precision="ieee"):
    key = a.data_ptr(), b.data_ptr(), a.shape, b.shape
    seen, result = results.get(key, (0, None))
    if seen < 4:
        result = a @ b
    results[key] = seen + 1, result
    flag.zero_()
    return result
