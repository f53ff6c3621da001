"""Rows over their root mean square as codes of 8 bits, and a scale for each group of them, by kernels of torch."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import rms_norm

from torch_impls import quantize
from torch_impls._runtime.contract import check_codes, check_norm

VENDOR = "PyTorch"

Matrix = Float[Tensor, "M N"]
Weight = Float[Tensor, "N"]
Results = tuple[quantize.Codes, quantize.Scales]


def plain(x: Tensor, weight: Tensor, eps: float, rows: int, columns: int, to: str) -> tuple[Tensor, Tensor]:
    return quantize.plain(rms_norm(x.float(), x.shape[1:], weight.float(), eps), rows, columns, to)


def rms_norm_quantize(
    x: Matrix, weight: Weight, *, eps: float, group: str = "row", to: str = "float8_e4m3fn"
) -> Results:
    """(codes, scales) of y = rms_norm(x, weight): scale = max |y| / 448 (int8: 127), at least 2^-126; code = y / scale.

    x (M, N), weight (N,), any strides; the results are row-major. A group is a row, 128 columns of it, or 128 x 128.
    float32, float16 or bfloat16; computed in float32. NaN becomes 0 in int8. Raises ValueError for other arguments.
    """
    _, N = check_norm("rms_norm_quantize", x, weight=weight)
    rows, columns = check_codes("rms_norm_quantize", N, group=group, to=to)
    codes, scales = plain(x.contiguous(), weight, eps, rows, columns, to)
    return codes.contiguous(), scales
