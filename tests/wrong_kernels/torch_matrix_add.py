"""C = A + B in PyTorch, with mistakes about how matrices lie in memory."""

import torch
from torch import Tensor

from wrong_kernels import Wrong

MISTAKES = {
    "layout_of_the_inputs": Wrong(
        "torch.add gives its result the layout of the inputs", "strides", (33, 65), options={"layout": "tt"}
    ),
    "read_in_order_of_memory": Wrong("B is read as if it were row-major", "value", (33, 65), options={"layout": "nt"}),
}


def make(mistake: str):
    def matrix_add(a: Tensor, b: Tensor) -> Tensor:
        if mistake == "layout_of_the_inputs":
            return torch.add(a, b)
        if mistake == "read_in_order_of_memory":
            b = b.as_strided(b.shape, (b.shape[1], 1))
        return torch.add(a, b, out=a.new_empty(a.shape))

    return matrix_add
