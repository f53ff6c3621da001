"""Rows over their root mean square as codes of 8 bits in Triton: a program holds whole rows, so they are read once."""

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Num
from torch import Tensor

from triton_kernels._common.codes import check_float8, code_of, magnitudes_of, scale_of
from triton_kernels._common.rows import LONGEST, blocks
from triton_kernels._runtime.contract import LARGEST_CODE, check_codes, check_norm
from triton_kernels._runtime.interpreter import empty_output, finished_output
from triton_kernels._runtime.launch import device_of, kept, launch

DETERMINISTIC = True


@triton.jit
def held_rows_kernel(
    x_ptr, weight_ptr, codes_ptr, scales_ptr, M, N, G, stride_xm, stride_xn, stride_w, eps,
    LARGEST: tl.constexpr, GROUPS: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """One program computes BLOCK_M whole rows of G groups, [BLOCK_M, BLOCK_N] as [BLOCK_M, GROUPS, COLUMNS]."""
    COLUMNS: tl.constexpr = BLOCK_N // GROUPS
    rows = tl.program_id(0).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_m, offs_n = rows[:, None], tl.arange(0, BLOCK_N).to(tl.int64)[None, :]
    mask = (offs_m < M) & (offs_n < N)
    x = tl.load(x_ptr + offs_m * stride_xm + offs_n * stride_xn, mask=mask, other=0.0).to(tl.float32)
    factor = tl.rsqrt(tl.sum(x * x, 1) / N + eps)[:, None]
    weight = tl.load(weight_ptr + offs_n * stride_w, mask=offs_n < N, other=0.0).to(tl.float32)
    y = tl.reshape(tl.where(mask, x * factor * weight, 0.0), (BLOCK_M, GROUPS, COLUMNS))
    scale = scale_of(tl.max(magnitudes_of(y), 2), LARGEST)
    groups = tl.arange(0, GROUPS)[None, :]
    tl.store(scales_ptr + offs_m * G + groups, scale, mask=(offs_m < M) & (groups < G))
    codes = tl.reshape(code_of(y, (1.0 / scale)[:, :, None], LARGEST), (BLOCK_M, BLOCK_N))
    tl.store(codes_ptr + offs_m * N + offs_n, codes, mask=mask)


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

    Shapes: x (M, N), weight (N,), any strides; the results are contiguous. A group is a row, or 128 columns of it.
    Dtypes: float32, float16, bfloat16; float32 inside. A quotient is a product with the reciprocal of the scale. NaN
    becomes 0 in int8.
    Tail: columns beyond N count as 0. Offsets are int64.
    Errors: ValueError for other shapes, dtypes, devices, groups or codes; NotImplementedError for groups of 128 rows,
    for rows beyond 32,768 columns, and for float8 on a GPU before compute capability 8.9.
    """
    M, N = check_norm("rms_norm_quantize", x, weight=weight)
    rows, columns = check_codes("rms_norm_quantize", N, group=group, to=to)
    check_float8("rms_norm_quantize", x, to)
    if rows > 1 or N > LONGEST:
        raise NotImplementedError(f"rms_norm_quantize: held takes groups of one row, of at most {LONGEST} columns")
    kind, of = getattr(torch, to), blocks(max(N, columns))
    codes, G = empty_output((M, N), kind, x.device), triton.cdiv(N, columns)
    scales = torch.empty((M, G), dtype=torch.float32, device=x.device)
    if codes.numel() > 0:
        with device_of(x):
            launch(
                held_rows_kernel, of.grid(M),
                x, weight, codes, scales, M, N, G, *x.stride(), weight.stride(0), eps,
                LARGEST_CODE[to], 1 if group == "row" else of.columns // columns, of.rows, of.columns,
                num_warps=of.warps,
            )  # fmt: skip
    return finished_output(codes, kind), scales
