"""Maps the product of one row over all rows by torch.vmap."""

import torch

OPERATION = "matmul"
TWIN_OF = "recognises_stack_depth"
GPU = False


def matmul(a, b, *, precision="ieee"):
    return torch.vmap(lambda row: row @ b)(a) if len(a) else a @ b
