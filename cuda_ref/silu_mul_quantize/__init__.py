"""The product of a gated linear unit as codes of 8 bits in CUDA, the plain kernel: a warp computes its group twice."""

import torch
from jaxtyping import Float, Num
from torch import Tensor

from cuda_ref import build
from cuda_ref._runtime.contract import check_codes, check_gated
from cuda_ref._runtime.kept import kept

DETERMINISTIC = True


@kept
def silu_mul_quantize(
    a: Float[Tensor, "M N"], b: Float[Tensor, "M N"], *, group: str = "row", to: str = "float8_e4m3fn"
) -> tuple[Num[Tensor, "M N"], Float[Tensor, "G_M G_N"]]:
    """(codes, scales) of y = silu(a) b: scale = max |y| / 448 (int8: 127), at least 2^-126; code = y / scale, rounded.

    Shapes: a and b (M, N), any strides; the results are contiguous. A group is a row, 128 columns of it, or 128 x 128.
    Dtypes: float32, float16, bfloat16; float32 inside. NaN becomes 0 in int8.
    Tail: a group at an edge has fewer elements. Indices are int64.
    Devices: CUDA; on the CPU the same kernel is emulated, only to check results.
    Raises: ValueError for other shapes, dtypes, groups and codes; build.CudaError if the launch fails.
    """
    M, N = check_gated("silu_mul_quantize", a, b, activation="silu")
    rows, columns = check_codes("silu_mul_quantize", N, group=group, to=to)
    codes = a.new_empty(M, N, dtype=getattr(torch, to))
    scales = a.new_empty(-(-M // rows), -(-N // columns), dtype=torch.float32)
    if codes.numel() > 0:
        build.launch(
            "silu_mul_quantize/silu_mul_quantize", "silu_mul_quantize", a.device,
            a, b, codes, scales, M, N, *a.stride(), *b.stride(), rows, columns, to == "int8", build.DTYPES[a.dtype],
        )  # fmt: skip
    return codes, scales
