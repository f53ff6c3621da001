"""Rows over their root mean square as codes of 8 bits, and a scale for each group of them, by torch.compile."""

from __future__ import annotations

from torch_impls._runtime.compiled import compiled
from torch_impls._runtime.contract import check_codes, check_norm
from torch_impls.rms_norm_quantize import Matrix, Results, Weight, plain

VENDOR = "PyTorch (Inductor)"
REQUIRES = "cuda"

_rms_norm_quantize = compiled("rms_norm_quantize", plain)


def rms_norm_quantize(
    x: Matrix, weight: Weight, *, eps: float, group: str = "row", to: str = "float8_e4m3fn"
) -> Results:
    """(codes, scales) of y = rms_norm(x, weight): scale = max |y| / 448 (int8: 127), at least 2^-126; code = y / scale.

    Row-major operands. Raises ValueError for other shapes and dtypes; NotImplementedError for strides and for few
    elements.
    """
    _, N = check_norm("rms_norm_quantize", x, weight=weight)
    rows, columns = check_codes("rms_norm_quantize", N, group=group, to=to)
    codes, scales = _rms_norm_quantize(x, weight, eps=eps, rows=rows, columns=columns, to=to)
    return codes.contiguous(), scales
