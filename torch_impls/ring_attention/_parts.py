"""This rank's attention alone and the all-gather alone, of the plain line."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import Tensor

from torch_impls.attention import attention


def parts(
    q: Tensor, k: Tensor, v: Tensor, *, group: dist.ProcessGroup, causal: bool = False
) -> dict[str, Callable[[], object]]:
    """`product`: as many pairs of a query and a key as this rank has, by SDPA; `communication`: the gathering of k, v.

    Causal: half of the queries see all keys, which are as many pairs but for half a pair a query.
    """
    own = torch.stack((k, v))
    gathered = own.new_empty(2 * group.size(), *k.shape)
    keys, values = (each.repeat(1, 1, group.size(), 1) for each in own)
    some = q[:, :, q.shape[2] // 2 :] if causal else q
    return {
        "product": lambda: attention(some, keys, values),
        "communication": lambda: dist.all_gather_into_tensor(gathered, own, group=group),
    }
