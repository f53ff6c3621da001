"""y = 1 / (1 + exp(-x)) in Triton, for float16, with mistakes in range, precision and place."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from wrong_kernels import Wrong

MISTAKES = {
    "exp_overflows": Wrong(
        "exp(x) / (1 + exp(x)), which is inf / inf for large x", "not finite", (1025,), "float16", inputs="largest"
    ),
    "float16_intermediate": Wrong("the exponential is rounded to float16 on its way", "value", (1000,), "float16"),
    "in_place": Wrong("writes its result over the input", "aliases input", (1000,), "float16"),
}
BLOCK = 256


@triton.jit
def kernel(x_ptr, y_ptr, N, MISTAKE: tl.constexpr, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs, mask=offs < N, other=0.0).to(tl.float32)
    if MISTAKE == "exp_overflows":
        e = tl.exp(x)
        y = e / (1.0 + e)
    else:
        e = tl.exp(-tl.abs(x))
        if MISTAKE == "float16_intermediate":
            e = e.to(tl.float16).to(tl.float32)
        y = tl.where(x < 0, e, 1.0) / (1.0 + e)
    tl.store(y_ptr + offs, y, mask=offs < N)


def make(mistake: str):
    def sigmoid(x: Tensor) -> Tensor:
        y = x if mistake == "in_place" else torch.empty(x.shape, dtype=x.dtype, device=x.device)
        kernel[(triton.cdiv(x.numel(), BLOCK),)](x, y, x.numel(), mistake, BLOCK)
        return y

    return sigmoid
