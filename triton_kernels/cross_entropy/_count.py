"""The share of a row in the mean over the rows that have a target."""

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Int64
from torch import Tensor

from triton_kernels._runtime.interpreter import INTERPRET, empty_output
from triton_kernels._runtime.launch import launch

BLOCK = 2**16 if INTERPRET else 2048  # targets that the program counts at a time

Logits = Float[Tensor, "T V"]
Loss = Float[Tensor, "T"]
Target = Int64[Tensor, "T"]


@triton.jit
def count_kernel(target_ptr, share_ptr, T, stride_t, ignore_index, BLOCK: tl.constexpr):
    """One program stores 1 / (number of targets that are not ignore_index), or 1 if there are none."""
    offs = tl.arange(0, BLOCK).to(tl.int64)
    count = tl.zeros((BLOCK,), tl.int32)
    for start in range(0, T, BLOCK):
        mask = start + offs < T
        target = tl.load(target_ptr + (start + offs) * stride_t, mask=mask, other=ignore_index)
        count += (target != ignore_index).to(tl.int32)
    total = tl.maximum(tl.sum(count, 0), 1)
    tl.store(share_ptr, 1.0 / total.to(tl.float32))


def outputs(logits: Tensor, target: Tensor, ignore_index: int) -> tuple[Tensor, Tensor, Tensor]:
    """Allocates the losses and gradients, and computes the share of a counted row in the mean, one float32."""
    (T, V), device = logits.shape, logits.device
    loss, share = (torch.empty(size, dtype=torch.float32, device=device) for size in (T, 1))
    launch(count_kernel, (1,), target, share, T, target.stride(0), ignore_index, BLOCK)
    return loss, empty_output((T, V), logits.dtype, device), share


def nothing(logits: Tensor) -> tuple[Tensor, Tensor]:
    """The results without rows or without columns."""
    return logits.new_zeros(len(logits), dtype=torch.float32), logits.new_empty(logits.shape)
