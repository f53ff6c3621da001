"""y = 1 / (1 + exp(-x)) in PyTorch, by formulas that are not quite as good."""

import torch
from torch import Tensor

from wrong_kernels import Wrong

MISTAKES = {
    "by_tanh": Wrong("(1 + tanh(x / 2)) / 2: where tanh is near -1 the digits cancel", "value", (100_003,)),
    "clipped": Wrong("x is clipped to +-20 so that nothing overflows", "value", (1025,), inputs="infinity"),
    "in_place": Wrong("sigmoid_ works in place", "aliases input", (1000,)),
    "overwritten_input": Wrong("exp(-x) is computed in place, though the result is not", "inputs changed", (1000,)),
}


def make(mistake: str):
    def sigmoid(x: Tensor) -> Tensor:
        if mistake == "by_tanh":
            return 0.5 * (1.0 + torch.tanh(0.5 * x))
        if mistake == "clipped":
            x = x.clamp(-20.0, 20.0)
        if mistake == "overwritten_input":
            return 1.0 / x.neg_().exp_().add_(1.0)
        return torch.sigmoid_(x) if mistake == "in_place" else torch.sigmoid(x)

    return sigmoid
