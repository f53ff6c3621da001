"""C = A + B in PyTorch, with mistakes about how matrices lie in memory."""

import torch
from torch import Tensor

from wrong_kernels import Wrong

MISTAKES = {
    "a_in_bfloat16": Wrong("A is rounded to bfloat16 first", "value", (33, 65)),
    "read_in_order_of_memory": Wrong("B is read as if it were row-major", "value", (33, 65), options={"layout": "nt"}),
}


def make(mistake: str):
    def matrix_add(a: Tensor, b: Tensor) -> Tensor:
        if mistake == "a_in_bfloat16":
            return a.bfloat16() + b
        if mistake == "read_in_order_of_memory":
            b = b.as_strided(b.shape, (b.shape[1], 1))
        return torch.add(a, b, out=a.new_empty(a.shape))

    return matrix_add
