"""Codes of 8 bits with a scale for each group in CUDA, the plain kernel: a warp reads its group twice."""

import torch
from jaxtyping import Float, Num
from torch import Tensor

from cuda_ref import build
from cuda_ref._runtime.contract import check_quantize
from cuda_ref._runtime.kept import kept

DETERMINISTIC = True

Codes = Num[Tensor, "M N"]
Scales = Float[Tensor, "G_M G_N"]


@kept
def quantize(x: Float[Tensor, "M N"], *, group: str = "row", to: str = "float8_e4m3fn") -> tuple[Codes, Scales]:
    """(codes, scales): scale = max |x| / 448 (int8: 127) of a group, at least 2^-126; code = x / scale, rounded.

    Shapes: x (M, N), any strides; the results are contiguous. A group is a row, 128 columns of it, or 128 x 128.
    Dtypes: float32, float16, bfloat16; float32 inside. NaN becomes 0 in int8.
    Tail: a group at an edge has fewer elements. Indices are int64.
    Devices: CUDA; on the CPU the same kernel is emulated, only to check results.
    Raises: ValueError for other shapes, dtypes, groups and codes; build.CudaError if the launch fails.
    """
    rows, columns = check_quantize(x, group=group, to=to)
    M, N = x.shape
    codes = x.new_empty(M, N, dtype=getattr(torch, to))
    scales = x.new_empty(-(-M // rows), -(-N // columns), dtype=torch.float32)
    if codes.numel() > 0:
        build.launch(
            "quantize/quantize", "quantize", x.device,
            x, codes, scales, M, N, *x.stride(), rows, columns, to == "int8", build.DTYPES[x.dtype],
        )  # fmt: skip
    return codes, scales
