"""The rotary position embedding by liger-kernel: a Triton program per token, which works in place."""

import torch
from liger_kernel.ops import LigerRopeFunction
from torch import Tensor

from triton_kernels._runtime.contract import check_rope
from triton_kernels.rope import Angles, Keys, Queries

PEER = "liger-kernel"
REQUIRES = "cuda"


def rope(
    q: Queries, k: Keys, cos: Angles, sin: Angles, *, layout: str = "halves", inverse: bool = False
) -> tuple[Queries, Keys]:
    """(a, b) -> (a cos - b sin, b cos + a sin) for each pair of features i and i + D/2 of q and k.

    The library overwrites q and k, so both are copied first; it computes in the type of cos, so that becomes float32.
    Raises ValueError for other shapes and dtypes, NotImplementedError for `pairs` and `inverse`.
    """
    check_rope(q, k, cos, sin, layout=layout)
    if layout != "halves" or inverse:
        raise NotImplementedError("rope: liger-kernel takes layout='halves' without inverse")
    if q.numel() == 0 or k.numel() == 0:
        raise NotImplementedError("rope: liger-kernel takes no empty operands")
    q, k = (x.clone(memory_format=torch.contiguous_format).transpose(1, 2) for x in (q, k))
    both = [torch.cat([x, x], dim=-1).float()[None] for x in (cos, sin)]
    rotated: tuple[Tensor, Tensor] = LigerRopeFunction.apply(q, k, *both)
    return rotated[0].transpose(1, 2), rotated[1].transpose(1, 2)
