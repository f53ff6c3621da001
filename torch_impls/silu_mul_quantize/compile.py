"""The product of a gated linear unit as codes of 8 bits, and a scale for each group of them, by torch.compile."""

from __future__ import annotations

from torch_impls._runtime.compiled import compiled
from torch_impls._runtime.contract import check_codes, check_gated
from torch_impls.silu_mul_quantize import Matrix, Results, plain

VENDOR = "PyTorch (Inductor)"
REQUIRES = "cuda"

_silu_mul_quantize = compiled("silu_mul_quantize", plain)


def silu_mul_quantize(a: Matrix, b: Matrix, *, group: str = "row", to: str = "float8_e4m3fn") -> Results:
    """(codes, scales) of y = silu(a) b: scale = max |y| / 448 (int8: 127), at least 2^-126; code = y / scale, rounded.

    Row-major operands. Raises ValueError for other shapes and dtypes; NotImplementedError for strides and for few
    elements.
    """
    _, N = check_gated("silu_mul_quantize", a, b, activation="silu")
    rows, columns = check_codes("silu_mul_quantize", N, group=group, to=to)
    codes, scales = _silu_mul_quantize(a, b, rows=rows, columns=columns, to=to)
    return codes.contiguous(), scales
