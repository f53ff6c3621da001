"""Codes of 8 bits, and a scale for each group of them, compiled by torch.compile."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

from torch_impls._runtime.compiled import compiled
from torch_impls._runtime.contract import check_quantize
from torch_impls.quantize import Codes, Scales, plain

VENDOR = "PyTorch (Inductor)"
REQUIRES = "cuda"

_quantize = compiled("quantize", plain)


def quantize(x: Float[Tensor, "M N"], *, group: str = "row", to: str = "float8_e4m3fn") -> tuple[Codes, Scales]:
    """(codes, scales): scale = max |x| / 448 (int8: 127) of a group, at least 2^-126; code = x / scale, rounded.

    Row-major operands. Raises ValueError for other shapes and dtypes; NotImplementedError for strides and for few
    elements.
    """
    rows, columns = check_quantize(x, group=group, to=to)
    codes, scales = _quantize(x, rows=rows, columns=columns, to=to)
    return codes.contiguous(), scales
