"""Attention over a split sequence: each rank gathers the keys and values of all ranks."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import Tensor

from torch_impls._runtime.contract import check_ring_attention
from torch_impls._runtime.shares import zigzag


def gathered(
    attention: Callable[..., Tensor],
    q: Tensor,
    k: Tensor,
    v: Tensor,
    group: dist.ProcessGroup,
    causal: bool,
) -> Tensor:
    """This rank's rows, by `attention` after an all-gather of k and v. Without a mask, keys may be in any order."""
    _, _, _, S, _ = check_ring_attention(q, k, v)
    if q.numel() == 0:
        return q.new_empty(q.shape)
    ranks, rank, half = group.size(), group.rank(), S // 2
    own = torch.stack((k, v))
    joined = own.new_empty(2 * ranks, *k.shape)
    dist.all_gather_into_tensor(joined, own, group=group)
    every = joined.view(ranks, *own.shape)
    if not causal:
        k, v = every.movedim(0, 3).flatten(3, 4)
        return attention(q, k, v)
    low, high = every[..., :half, :], every.flip(0)[..., half:, :]
    k, v = torch.cat([each.movedim(0, 3).flatten(3, 4) for each in (low, high)], dim=3)
    out = torch.empty_like(q, memory_format=torch.contiguous_format)
    for rows, first in zip((slice(0, half), slice(half, S)), zigzag(rank, ranks, S), strict=True):
        end = first + rows.stop - rows.start
        if rows.stop > rows.start:
            out[:, :, rows] = attention(q[:, :, rows], k[:, :, :end], v[:, :, :end], causal=True)
    return out
