"""The parts of the plain implementation, each alone: this rank's attention and the all-gather."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import Tensor

from torch_impls.attention import attention


def parts(
    q: Tensor, k: Tensor, v: Tensor, *, group: dist.ProcessGroup, causal: bool = False
) -> dict[str, Callable[[], object]]:
    """`product`: attention over as many (query, key) pairs as this rank has, by SDPA; `communication`: the all-gather.

    causal: half of the queries with all keys, because their pairs are nearly as many as the visible pairs of all.
    """
    own = torch.stack((k, v))
    gathered = own.new_empty(2 * group.size(), *k.shape)
    keys, values = (each.repeat(1, 1, group.size(), 1) for each in own)
    some = q[:, :, q.shape[2] // 2 :] if causal else q
    return {
        "product": lambda: attention(some, keys, values),
        "communication": lambda: dist.all_gather_into_tensor(gathered, own, group=group),
    }
