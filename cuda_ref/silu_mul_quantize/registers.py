"""The product of a gated linear unit as codes of 8 bits in CUDA: adds 16-byte loads; each number is read once."""

import torch
from jaxtyping import Float, Num
from torch import Tensor

from cuda_ref import build
from cuda_ref._runtime.contract import check_codes, check_gated
from cuda_ref._runtime.kept import kept
from cuda_ref.common.rows import PACK_BYTES, are_packed

DETERMINISTIC = True

LONGEST = 1024 * 4 * PACK_BYTES
"""Bytes of the longest row of a that a block holds: 4 packs for each of 1024 threads."""


@kept
def silu_mul_quantize(
    a: Float[Tensor, "M N"], b: Float[Tensor, "M N"], *, group: str = "row", to: str = "float8_e4m3fn"
) -> tuple[Num[Tensor, "M N"], Float[Tensor, "G_M G_N"]]:
    """(codes, scales) of y = silu(a) b: scale = max |y| / 448 (int8: 127), at least 2^-126; code = y / scale, rounded.

    Shapes: a and b (M, N); the results are contiguous. A group is a row of at most 64 KiB, 128 columns, or 128 x 128.
    Strides: each row must be contiguous and begin and end at multiples of 16 bytes.
    Dtypes: float32, float16, bfloat16; float32 inside. A quotient is a product with the reciprocal of the scale. NaN
    becomes 0 in int8.
    Tail: packs beyond M and N count as 0. Indices are int64.
    Devices: CUDA; on the CPU the same kernel is emulated, only to check results.
    Raises: ValueError for other shapes, dtypes, groups and codes; NotImplementedError for other rows; build.CudaError
    if the launch fails.
    """
    M, N = check_gated("silu_mul_quantize", a, b, activation="silu")
    rows, columns = check_codes("silu_mul_quantize", N, group=group, to=to)
    if not (are_packed(a) and are_packed(b)):
        raise NotImplementedError(f"silu_mul_quantize: rows must begin and end at multiples of {PACK_BYTES} bytes")
    if group == "row" and N * a.element_size() > LONGEST:
        got = N * a.element_size()
        raise NotImplementedError(f"silu_mul_quantize: a block holds rows of at most {LONGEST} bytes; got {got}")
    codes = a.new_empty(M, N, dtype=getattr(torch, to))
    scales = a.new_empty(-(-M // rows), -(-N // columns), dtype=torch.float32)
    if codes.numel() > 0:
        build.launch(
            "silu_mul_quantize/registers", "silu_mul_quantize_registers", a.device,
            a, b, codes, scales, M, N, a.stride(0), b.stride(0), rows, group != "row", to == "int8",
            build.DTYPES[a.dtype],
        )  # fmt: skip
    return codes, scales
