"""Codes of 8 bits, and a scale for each group of them, by kernels of torch."""

from __future__ import annotations

import torch
from jaxtyping import Float, Num
from torch import Tensor

from torch_impls._runtime.contract import LARGEST_CODE, LEAST_SCALE, check_quantize

VENDOR = "PyTorch"

Codes = Num[Tensor, "M N"]
Scales = Float[Tensor, "G_M G_N"]


def plain(x: Tensor, rows: int, columns: int, to: str) -> tuple[Tensor, Tensor]:
    M, N = x.shape
    padded = torch.nn.functional.pad(x, (0, -N % columns, 0, -M % rows)).float()
    groups = padded.view(padded.shape[0] // rows, rows, padded.shape[1] // columns, columns)
    scales = (groups.abs().amax(dim=(1, 3)) / LARGEST_CODE[to]).clamp(min=LEAST_SCALE)
    quotient = (groups / scales[:, None, :, None]).view(padded.shape)[:M, :N]
    if to == "int8":
        return quotient.round().nan_to_num(0.0).to(torch.int8), scales
    return quotient.to(torch.float8_e4m3fn), scales


def quantize(x: Float[Tensor, "M N"], *, group: str = "row", to: str = "float8_e4m3fn") -> tuple[Codes, Scales]:
    """(codes, scales): scale = max |x| / 448 (int8: 127) of a group, at least 2^-126; code = x / scale, rounded.

    x (M, N), any strides; the results are row-major. A group is a row, 128 columns of it, or 128 x 128.
    float32, float16 or bfloat16; computed in float32. NaN becomes 0 in int8. Raises ValueError for other arguments.
    """
    rows, columns = check_quantize(x, group=group, to=to)
    codes, scales = plain(x.contiguous(), rows, columns, to)
    return codes.contiguous(), scales
