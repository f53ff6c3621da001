"""A gated linear unit's product in Triton: one program computes one tile of silu(a) b or gelu(a) b."""

import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor

from triton_kernels._common.activation import gate_of
from triton_kernels._common.rows import row_tile
from triton_kernels._runtime.contract import check_gated
from triton_kernels._runtime.interpreter import empty_output, finished_output
from triton_kernels._runtime.launch import device_of, kept, launch

DETERMINISTIC = True


@triton.jit
def silu_mul_kernel(
    a_ptr, b_ptr, out_ptr, M, N, stride_am, stride_an, stride_bm, stride_bn,
    ACTIVATION: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """One program computes one tile, [BLOCK_M, BLOCK_N]."""
    tiles_n = tl.cdiv(N, BLOCK_N)
    offs_m = (tl.program_id(0) // tiles_n).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    offs_n = (tl.program_id(0) % tiles_n).to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    mask = (offs_m < M) & (offs_n < N)
    a = tl.load(a_ptr + offs_m * stride_am + offs_n * stride_an, mask=mask, other=0.0)
    b = tl.load(b_ptr + offs_m * stride_bm + offs_n * stride_bn, mask=mask, other=0.0).to(tl.float32)
    tl.store(out_ptr + offs_m * N + offs_n, a.to(tl.float32) * gate_of(a, ACTIVATION) * b, mask=mask)


@kept
def silu_mul(a: Float[Tensor, "M N"], b: Float[Tensor, "M N"], *, activation: str = "silu") -> Float[Tensor, "M N"]:
    """out[i, j] = act(a[i, j]) * b[i, j]; act is silu, or gelu by its approximation with tanh.

    Shapes: a and b (M, N), any strides. The output is contiguous.
    Dtypes: float32, float16, bfloat16; float32 inside, rounded once.
    Tail: rows and columns beyond the last are masked. Offsets are int64.
    Errors: ValueError for other shapes, dtypes, devices or activations.
    Source: N. Shazeer, "GLU Variants Improve Transformer", 2020 (arXiv 2002.05202).
    """
    M, N = check_gated("silu_mul", a, b, activation=activation)
    out = empty_output((M, N), a.dtype, a.device)
    if out.numel() > 0:
        BLOCK_M, BLOCK_N = row_tile(N)
        with device_of(a):
            launch(
                silu_mul_kernel, (triton.cdiv(M, BLOCK_M) * triton.cdiv(N, BLOCK_N),),
                a, b, out, M, N, *a.stride(), *b.stride(), activation, BLOCK_M, BLOCK_N, num_warps=4,
            )  # fmt: skip
    return finished_output(out, a.dtype)
