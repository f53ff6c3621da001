"""A kernel as an operator of PyTorch: `torch.library` gives it a schema, shapes without data, and a gradient.

    python examples/custom_operators/torch_library.py

The operator is max pooling by the CUDA kernels of this suite, which run emulated without a GPU. PyTorch then
differentiates it, traces it in torch.compile and checks it by `opcheck`.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))


@torch.library.custom_op("examples::max_pool", mutates_args=())
def max_pool(x: Tensor, size: int) -> Tensor:
    """The largest number of each size x size square of x (N, H, W, C)."""
    from cuda_ref.max_pool2d import max_pool2d

    return max_pool2d(x, window=(size, size), stride=size)


@torch.library.custom_op("examples::max_pool_backward", mutates_args=())
def max_pool_backward(x: Tensor, dy: Tensor, size: int) -> Tensor:
    from cuda_ref.max_pool2d_grad import max_pool2d_grad

    return max_pool2d_grad(x, dy, window=(size, size), stride=size)


@max_pool.register_fake
def _(x: Tensor, size: int) -> Tensor:
    """The result's shape, for torch.compile: no kernel runs."""
    N, H, W, C = x.shape
    return x.new_empty(N, H // size, W // size, C)


@max_pool_backward.register_fake
def _(x: Tensor, dy: Tensor, size: int) -> Tensor:
    return x.new_empty(x.shape)


def _keep(ctx: Any, inputs: tuple[Tensor, int], output: Tensor) -> None:
    ctx.save_for_backward(inputs[0])
    ctx.size = inputs[1]


def _gradient(ctx: Any, dy: Tensor) -> tuple[Tensor, None]:
    return max_pool_backward(ctx.saved_tensors[0], dy, ctx.size), None


max_pool.register_autograd(_gradient, setup_context=_keep)


def main() -> None:
    x = torch.randn(2, 6, 8, 5, device="cuda" if torch.cuda.is_available() else "cpu", requires_grad=True)
    torch.library.opcheck(max_pool, (x, 2))
    weights = torch.randn(2, 3, 4, 5, device=x.device)
    (own,) = torch.autograd.grad((max_pool(x, 2) * weights).sum(), x)
    theirs = torch.nn.functional.max_pool2d(x.permute(0, 3, 1, 2), 2).permute(0, 2, 3, 1)
    (expected,) = torch.autograd.grad((theirs * weights).sum(), x)
    compiled = torch.compile(lambda x: max_pool(x, 2) * 2.0, fullgraph=True, backend="aot_eager")
    print("result equal:  ", torch.equal(max_pool(x, 2), theirs))
    print("gradient equal:", torch.equal(own, expected))
    print("compiled equal:", torch.equal(compiled(x), theirs * 2.0))


if __name__ == "__main__":
    main()
