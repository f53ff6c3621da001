"""The rotary position embedding of queries and keys, compiled by torch.compile."""

from __future__ import annotations

from torch_impls._runtime.compiled import compiled
from torch_impls._runtime.contract import check_rope
from torch_impls.rope import Angles, Keys, Queries, plain

VENDOR = "PyTorch (Inductor)"
REQUIRES = "cuda"

_rope = compiled("rope", plain)


def rope(
    q: Queries, k: Keys, cos: Angles, sin: Angles, *, layout: str = "halves", inverse: bool = False
) -> tuple[Queries, Keys]:
    """(a, b) -> (a cos - b sin, b cos + a sin) for each pair of features of q and k; see `torch`.

    Row-major operands; float32 inside, rounded once. Raises ValueError for other arguments; NotImplementedError for
    strides and for few elements.
    """
    check_rope(q, k, cos, sin, layout=layout)
    return _rope(q, k, cos, sin, layout=layout, inverse=inverse)
