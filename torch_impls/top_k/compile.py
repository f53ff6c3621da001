"""The k largest numbers of each row and their indices, compiled by torch.compile, which calls torch.topk."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

from torch_impls._runtime.compiled import compiled
from torch_impls._runtime.contract import check_top_k
from torch_impls.top_k import Indices, Values, plain

VENDOR = "PyTorch (Inductor)"
REQUIRES = "cuda"

_top_k = compiled("top_k", plain)


def top_k(x: Float[Tensor, "M N"], *, k: int) -> tuple[Values, Indices]:
    """(values, indices) of the k largest numbers of each row, in descending order; NaN is larger than all others.

    x (M, N), row-major, k from 1 to N. Raises ValueError for other arguments; NotImplementedError for strides and for
    few elements.
    """
    check_top_k(x, k)
    values, indices = _top_k(x, k=k)
    return values, indices
