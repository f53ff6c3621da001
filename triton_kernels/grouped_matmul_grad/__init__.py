"""Gradients of each expert's weights in Triton: one program computes one tile of one expert, over its rows."""

import triton
import triton.language as tl
from jaxtyping import Float, Int32
from torch import Tensor

from triton_kernels._runtime.autotuner import autotune
from triton_kernels._runtime.experts import check_grouped_matmul_grad
from triton_kernels._runtime.interpreter import INTERPRET, dot_operand, empty_output, finished_output
from triton_kernels._runtime.launch import device_of, kept, launch
from triton_kernels.grouped_matmul import experts_of

DETERMINISTIC = True


@triton.jit
def grouped_matmul_grad_kernel(
    x_ptr, dy_ptr, sizes_ptr, dw_ptr, T, E, K, N, stride_xt, stride_xk, stride_dt, stride_dn, stride_s,
    EXPERTS: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_T: tl.constexpr,
):  # fmt: skip
    """One program computes a tile [BLOCK_K, BLOCK_N] of one expert, BLOCK_T rows at a time; zeros if it has no rows.

    The rows of the experts before it are counted from the sizes. EXPERTS: a power of two, at least E.
    """
    tiles_n = tl.cdiv(N, BLOCK_N)
    of_expert = tl.cdiv(K, BLOCK_K) * tiles_n
    expert, tile = tl.program_id(0) // of_expert, tl.program_id(0) % of_expert
    experts = tl.arange(0, EXPERTS)
    sizes = tl.load(sizes_ptr + experts.to(tl.int64) * stride_s, mask=experts < E, other=0)
    start = tl.sum(tl.where(experts < expert, sizes, 0), 0)
    end = tl.minimum(start + tl.sum(tl.where(experts == expert, sizes, 0), 0), T)

    offs_k = tile // tiles_n * BLOCK_K + tl.arange(0, BLOCK_K)[:, None]  # [BLOCK_K, 1]
    offs_n = tile % tiles_n * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]  # [1, BLOCK_N]
    offs_t = start + tl.arange(0, BLOCK_T)
    x_ptrs = x_ptr + offs_k.to(tl.int64) * stride_xk + offs_t[None, :].to(tl.int64) * stride_xt  # [BLOCK_K, BLOCK_T]
    dy_ptrs = dy_ptr + offs_t[:, None].to(tl.int64) * stride_dt + offs_n.to(tl.int64) * stride_dn  # [BLOCK_T, BLOCK_N]
    acc = tl.zeros((BLOCK_K, BLOCK_N), dtype=tl.float32)
    for t in range(start, end, BLOCK_T):
        inside = tl.arange(0, BLOCK_T) < end - t
        x = tl.load(x_ptrs, mask=(offs_k < K) & inside[None, :], other=0.0)
        dy = tl.load(dy_ptrs, mask=inside[:, None] & (offs_n < N), other=0.0)
        acc = tl.dot(dot_operand(x), dot_operand(dy), acc, input_precision="ieee")
        x_ptrs += tl.full((), BLOCK_T, tl.int64) * stride_xt
        dy_ptrs += tl.full((), BLOCK_T, tl.int64) * stride_dt
    dw_ptrs = dw_ptr + (expert.to(tl.int64) * K + offs_k) * N + offs_n
    tl.store(dw_ptrs, acc, mask=(offs_k < K) & (offs_n < N))


def _config(BLOCK_K: int, BLOCK_N: int, num_warps: int, num_stages: int) -> triton.Config:
    return triton.Config({"BLOCK_K": BLOCK_K, "BLOCK_N": BLOCK_N}, num_warps=num_warps, num_stages=num_stages)


CONFIGS = [_config(128, 128, 8, 4), _config(64, 128, 4, 4), _config(64, 64, 4, 4)]
if INTERPRET:  # without autotuning: one tile that numpy multiplies fast
    TILE: dict[str, int] = {"BLOCK_K": 128, "BLOCK_N": 128, "BLOCK_T": 128}
else:
    TILE = {"BLOCK_T": 32}
    KEY = ["T", "E", "K", "N", "stride_xt", "stride_xk", "stride_dt", "stride_dn"]
    grouped_matmul_grad_kernel = autotune(CONFIGS, KEY)(grouped_matmul_grad_kernel)


@kept
def grouped_matmul_grad(
    x: Float[Tensor, "T K"], dy: Float[Tensor, "T N"], sizes: Int32[Tensor, "E"]
) -> Float[Tensor, "E K N"]:
    """dw[e, k, n] = sum over the sizes[e] rows t of expert e of x[t, k] dy[t, n]; zeros for an expert without rows.

    The rows are in the order of the experts; sizes are not negative, and their sum is T. The host does not read them.

    Shapes: x (T, K), dy (T, N), sizes (E,), any strides; the output is contiguous.
    Dtypes: float32 (ieee products), float16, bfloat16; sums in float32, rounded once at the end; sizes int32.
    Tail: rows of the next expert are not read; offsets are int64.
    Errors: ValueError for other shapes, dtypes or devices; NotImplementedError for T, E, K or N above 2^26, and for
    more than 2^30 tiles.
    Source: Triton's matrix multiplication tutorial.
    """
    T, E, K, N = check_grouped_matmul_grad(x, dy, sizes)
    if max(T, E, K, N) > 2**26 or E * triton.cdiv(K, 64) * triton.cdiv(N, 64) > 2**30:
        raise NotImplementedError(f"grouped_matmul_grad: sizes must be at most 2^26, tiles 2^30; got {(T, E, K, N)}")
    out = empty_output((E, K, N), x.dtype, x.device)
    if out.numel() > 0:
        with device_of(x):
            launch(
                grouped_matmul_grad_kernel,
                lambda meta: (E * triton.cdiv(K, meta["BLOCK_K"]) * triton.cdiv(N, meta["BLOCK_N"]),),
                x, dy, sizes, out, T, E, K, N, *x.stride(), *dy.stride(), *sizes.stride(),
                EXPERTS=experts_of(E), **TILE,
            )  # fmt: skip
    return finished_output(out, x.dtype)
