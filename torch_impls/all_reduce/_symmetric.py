"""Buffers of torch's symmetric memory, and the vectors that its sums take."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor

from torch_impls._runtime.contract import check_all_reduce

_buffers: dict[tuple[str, torch.device, torch.dtype, int], Tensor] = {}


def checked(x: Tensor, multiple: int) -> Tensor:
    """x, contiguous. Raises NotImplementedError for float16, and unless its bytes are a multiple of `multiple`."""
    check_all_reduce("all_reduce", x)
    if x.dtype == torch.float16:
        raise NotImplementedError("all_reduce: torch's symmetric memory sums float32 and bfloat16; got float16")
    if x.numel() * x.element_size() % multiple:
        raise NotImplementedError(f"all_reduce: x must have a multiple of {multiple} bytes; got N={x.numel()}")
    x = x.contiguous()
    return x if x.data_ptr() % 16 == 0 else x.clone()


def buffer(x: Tensor, group: dist.ProcessGroup) -> Tensor:
    """Symmetric memory of x's form, the same in every call. All ranks of `group` call this together."""
    from torch.distributed import _symmetric_memory

    key = group.group_name, x.device, x.dtype, x.numel()
    if key not in _buffers:
        _buffers[key] = _symmetric_memory.empty(x.numel(), dtype=x.dtype, device=x.device)
        _symmetric_memory.rendezvous(_buffers[key], group)
    return _buffers[key]
