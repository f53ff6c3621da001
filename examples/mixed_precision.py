"""Training of one layer in mixed precision: 16-bit products, float32 sums, and float32 master weights.

    python examples/mixed_precision.py [--dtype bfloat16|float16] [--steps 200]

The layer y = sigma(x W^T + b) learns the outputs of another one. A step multiplies 16-bit copies of the weights, with
sums in float32 (`linear_sigmoid`, `linear_sigmoid_grad`), and subtracts the gradients from weights that are kept in
float32. Beside it the same steps are made without these master weights: an update smaller than half a unit in the last
place of a 16-bit weight is then rounded away, and the loss stays where it is.

float16 has few exponents: gradients below 2^-24 would be 0. So the loss is multiplied by a constant before the backward
pass, and the gradients are divided by it in float32.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
if torch.cuda.is_available():
    from triton_kernels.linear_sigmoid import linear_sigmoid
    from triton_kernels.linear_sigmoid_grad import linear_sigmoid_grad
else:  # the same functions by PyTorch
    from torch_impls.linear_sigmoid import linear_sigmoid
    from torch_impls.linear_sigmoid_grad import linear_sigmoid_grad

BATCH, OUTPUTS, INPUTS = 512, 32, 64
RATE = 2.0
LOSS_SCALE = {torch.bfloat16: 1.0, torch.float16: 2.0**12}


def step(x: Tensor, target: Tensor, weight: Tensor, bias: Tensor, dtype: torch.dtype) -> float:
    """One step of gradient descent on the mean squared error. Changes weight and bias, in their own type.

    x and target are of the 16-bit type `dtype`, weight and bias of any type. Returns the loss before the step.
    """
    small_weight, small_bias = weight.to(dtype), bias.to(dtype)
    y = linear_sigmoid(x, small_weight, small_bias)
    difference = y.float() - target.float()
    scale = LOSS_SCALE[dtype]
    dy = (difference * (scale * 2.0 / len(x))).to(dtype)
    _, dweight, dbias = linear_sigmoid_grad(x, small_weight, small_bias, dy)
    weight -= (dweight.float() * (RATE / scale)).to(weight.dtype)
    bias -= (dbias.float() * (RATE / scale)).to(bias.dtype)
    return float(difference.square().sum(1).mean())


def train(weights: torch.dtype, products: torch.dtype, steps: int) -> list[float]:
    """The losses of all steps, with weights kept in one type and multiplied in another."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    draw = torch.Generator().manual_seed(0)
    x, teacher, weight = (
        torch.randn(*shape, generator=draw) / shape[1] ** 0.5
        for shape in ((BATCH, INPUTS), (OUTPUTS, INPUTS), (OUTPUTS, INPUTS))
    )
    x = (x * INPUTS**0.5).to(device, products)
    target = torch.sigmoid(x.float() @ (2.0 * teacher.to(device)).T).to(products)
    weight, bias = weight.to(device, weights), torch.zeros(OUTPUTS, device=device, dtype=weights)
    return [step(x, target, weight, bias, products) for _ in range(steps)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dtype", choices=("bfloat16", "float16"), default="bfloat16")
    parser.add_argument("--steps", type=int, default=200)
    given = parser.parse_args()
    products = getattr(torch, given.dtype)
    losses = {name: train(getattr(torch, name), products, given.steps) for name in ("float32", given.dtype)}
    print(f"products in {given.dtype}; loss with weights kept in")
    print(f"{'step':>6}" + "".join(f"{name:>12}" for name in losses))
    for at in sorted({0, given.steps // 10, given.steps // 3, given.steps - 1}):
        print(f"{at:>6}" + "".join(f"{each[at]:>12.5f}" for each in losses.values()))


if __name__ == "__main__":
    main()
