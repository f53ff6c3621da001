"""Attention over a split sequence: NCCL gathers keys and values, then scaled_dot_product_attention."""

from __future__ import annotations

import torch.distributed as dist
from jaxtyping import Float
from torch import Tensor

from torch_impls.attention import attention
from torch_impls.ring_attention._gathered import gathered

VENDOR = "NCCL + PyTorch"


def ring_attention(
    q: Float[Tensor, "B H S D"],
    k: Float[Tensor, "B H_kv S D"],
    v: Float[Tensor, "B H_kv S D"],
    *,
    group: dist.ProcessGroup,
    causal: bool = False,
) -> Float[Tensor, "B H S D"]:
    """This rank's rows of attention over the sequence of all ranks of `group`.

    Causal: the first S // 2 rows of all ranks come first, in their order, then the other rows in reverse order of the
    ranks. Dtypes and errors: those of torch_impls.attention.
    """
    return gathered(attention, q, k, v, group, causal)
