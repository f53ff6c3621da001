"""Rows over their root mean square as codes of 8 bits in CUDA, the plain kernel: the rows' factors, then the groups."""

import torch
from jaxtyping import Float, Num
from torch import Tensor

from cuda_ref import build
from cuda_ref._runtime.contract import check_codes, check_norm
from cuda_ref._runtime.kept import kept

DETERMINISTIC = True


@kept
def rms_norm_quantize(
    x: Float[Tensor, "M N"],
    weight: Float[Tensor, "N"],
    *,
    eps: float,
    group: str = "row",
    to: str = "float8_e4m3fn",
) -> tuple[Num[Tensor, "M N"], Float[Tensor, "G_M G_N"]]:
    """(codes, scales) of y = rms_norm(x, weight): scale = max |y| / 448 (int8: 127), at least 2^-126; code = y / scale.

    Shapes: x (M, N), weight (N,), any strides; the results are contiguous. Strided vectors are copied. A group is a
    row, 128 columns of it, or 128 x 128.
    Dtypes: float32, float16, bfloat16; float32 inside. NaN becomes 0 in int8.
    Tail: a group at an edge has fewer elements. Indices are int64.
    Devices: CUDA; on the CPU the same kernels are emulated, only to check results.
    Raises: ValueError for other shapes, dtypes, groups and codes; build.CudaError if a launch fails.
    """
    M, N = check_norm("rms_norm_quantize", x, weight=weight)
    rows, columns = check_codes("rms_norm_quantize", N, group=group, to=to)
    codes = x.new_empty(M, N, dtype=getattr(torch, to))
    scales = x.new_empty(-(-M // rows), -(-N // columns), dtype=torch.float32)
    if codes.numel() > 0:
        factors = x.new_empty(M, dtype=torch.float32)
        build.launch(
            "rms_norm_quantize/rms_norm_quantize", "rms_norm_quantize", x.device,
            x, weight.contiguous(), factors, codes, scales, M, N, *x.stride(), eps, rows, columns, to == "int8",
            build.DTYPES[x.dtype],
        )  # fmt: skip
    return codes, scales
