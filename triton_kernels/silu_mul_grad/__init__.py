"""The gradients of a gated linear unit's product in Triton: one program computes one tile of both."""

import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor

from triton_kernels._common.activation import gate_of, slope_of
from triton_kernels._common.rows import row_tile
from triton_kernels._runtime.contract import check_gated
from triton_kernels._runtime.interpreter import empty_output, finished_output
from triton_kernels._runtime.launch import device_of, kept, launch

DETERMINISTIC = True

Matrix = Float[Tensor, "M N"]


@triton.jit
def silu_mul_grad_kernel(
    a_ptr, b_ptr, dy_ptr, da_ptr, db_ptr, M, N, stride_am, stride_an, stride_bm, stride_bn, stride_ym, stride_yn,
    ACTIVATION: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """One program computes one tile of both gradients, [BLOCK_M, BLOCK_N]."""
    tiles_n = tl.cdiv(N, BLOCK_N)
    offs_m = (tl.program_id(0) // tiles_n).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    offs_n = (tl.program_id(0) % tiles_n).to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    mask = (offs_m < M) & (offs_n < N)
    x = tl.load(a_ptr + offs_m * stride_am + offs_n * stride_an, mask=mask, other=0.0)
    b = tl.load(b_ptr + offs_m * stride_bm + offs_n * stride_bn, mask=mask, other=0.0).to(tl.float32)
    dy = tl.load(dy_ptr + offs_m * stride_ym + offs_n * stride_yn, mask=mask, other=0.0).to(tl.float32)
    a, s = x.to(tl.float32), gate_of(x, ACTIVATION)
    tl.store(da_ptr + offs_m * N + offs_n, dy * b * slope_of(a, s, ACTIVATION), mask=mask)
    tl.store(db_ptr + offs_m * N + offs_n, dy * (a * s), mask=mask)


@kept
def silu_mul_grad(a: Matrix, b: Matrix, dy: Matrix, *, activation: str = "silu") -> tuple[Matrix, Matrix]:
    """(da, db): gradients of the sum of dy * y, where y is the `silu_mul` of a and b.

    Shapes: a, b and dy (M, N), any strides. The outputs are contiguous.
    Dtypes: float32, float16, bfloat16; float32 inside, rounded once.
    Tail: rows and columns beyond the last are masked. Offsets are int64.
    Errors: ValueError for other shapes, dtypes, devices or activations.
    """
    M, N = check_gated("silu_mul_grad", a, b, dy, activation=activation)
    da, db = (empty_output((M, N), a.dtype, a.device) for _ in range(2))
    if da.numel() > 0:
        BLOCK_M, BLOCK_N = row_tile(N)
        with device_of(a):
            launch(
                silu_mul_grad_kernel, (triton.cdiv(M, BLOCK_M) * triton.cdiv(N, BLOCK_N),),
                a, b, dy, da, db, M, N, *a.stride(), *b.stride(), *dy.stride(), activation, BLOCK_M, BLOCK_N,
                num_warps=4,
            )  # fmt: skip
    return finished_output(da, a.dtype), finished_output(db, a.dtype)
