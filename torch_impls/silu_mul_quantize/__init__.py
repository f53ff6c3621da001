"""The product of a gated linear unit as codes of 8 bits, and a scale for each group of them, by kernels of torch."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

from torch_impls import quantize
from torch_impls._runtime.contract import check_codes, check_gated
from torch_impls.silu_mul import activated

VENDOR = "PyTorch"

Matrix = Float[Tensor, "M N"]
Results = tuple[quantize.Codes, quantize.Scales]


def plain(a: Tensor, b: Tensor, rows: int, columns: int, to: str) -> tuple[Tensor, Tensor]:
    return quantize.plain(activated(a, "silu") * b.float(), rows, columns, to)


def silu_mul_quantize(a: Matrix, b: Matrix, *, group: str = "row", to: str = "float8_e4m3fn") -> Results:
    """(codes, scales) of y = silu(a) b: scale = max |y| / 448 (int8: 127), at least 2^-126; code = y / scale, rounded.

    a and b (M, N), any strides; the results are row-major. A group is a row, 128 columns of it, or 128 x 128.
    float32, float16 or bfloat16; computed in float32. NaN becomes 0 in int8. Raises ValueError for other arguments.
    """
    _, N = check_gated("silu_mul_quantize", a, b, activation="silu")
    rows, columns = check_codes("silu_mul_quantize", N, group=group, to=to)
    codes, scales = plain(a.contiguous(), b.contiguous(), rows, columns, to)
    return codes.contiguous(), scales
