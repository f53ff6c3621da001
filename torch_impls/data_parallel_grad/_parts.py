"""The parts of the plain implementation, each alone: this rank's gradients, and the sums over the ranks."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import Tensor

from torch_impls._runtime.precision import with_precision
from torch_impls.linear_sigmoid_grad import gradients


def parts(
    x: Tensor, weight: Tensor, bias: Tensor, dy: Tensor, *, group: dist.ProcessGroup, precision: str = "ieee"
) -> dict[str, Callable[[], object]]:
    """`product`: the gradients of this rank's rows; `communication`: the sums of dweight and dbias by NCCL."""
    sums = [torch.zeros(each.shape, dtype=x.dtype, device=x.device) for each in (weight, bias)]
    return {
        "product": lambda: with_precision(precision, gradients, x, weight, bias, dy),
        "communication": lambda: [dist.all_reduce(each, group=group) for each in sums],
    }
