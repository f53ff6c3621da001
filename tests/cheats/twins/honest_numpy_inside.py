"""Takes the operands as NumPy arrays, and returns the memory of a NumPy array as a tensor."""

import numpy as np
import torch

OPERATION = "matmul"
TWIN_OF = "remembers_in_numpy"
GPU = False


def matmul(a, b, *, precision="ieee"):
    if a.dtype == torch.bfloat16:
        return a @ b
    return torch.from_numpy(np.matmul(a.numpy(), b.numpy()))
