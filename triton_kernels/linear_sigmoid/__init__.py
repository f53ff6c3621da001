"""A linear layer with a sigmoid in Triton: a matrix product whose epilogue adds the bias and applies the sigmoid."""

import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor

from triton_kernels._common.tiles import grouped_tile_any
from triton_kernels._runtime.arguments import check_sizes
from triton_kernels._runtime.autotuner import autotune
from triton_kernels._runtime.contract import check_linear
from triton_kernels._runtime.interpreter import INTERPRET, dot_operand, empty_output, finished_output, fitted
from triton_kernels._runtime.launch import device_of, kept, launch
from triton_kernels.sigmoid import sigmoid_of

DETERMINISTIC = True
GROUP_M = 8  # tile rows per group of the tile scheduler


@triton.jit
def linear_sigmoid_kernel(
    x_ptr, weight_ptr, bias_ptr, out_ptr, M, N, K, stride_xm, stride_xk, stride_wn, stride_wk, stride_b,
    PRECISION: tl.constexpr, GROUP_M: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """One program computes one tile of sigma(x weight^T + bias), [BLOCK_M, BLOCK_N], in float32 registers.

    Each step over K multiplies [BLOCK_M, BLOCK_K] of x by [BLOCK_K, BLOCK_N] of weight^T.
    """
    pid_m, pid_n = grouped_tile_any(tl.program_id(0), tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N), GROUP_M)
    offs_m = pid_m.to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    offs_n = pid_n.to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(0, K, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K).to(tl.int64)
        x_ptrs = x_ptr + offs_m * stride_xm + k[None, :] * stride_xk
        w_ptrs = weight_ptr + k[:, None] * stride_wk + offs_n * stride_wn
        x = tl.load(x_ptrs, mask=(offs_m < M) & (k[None, :] < K), other=0.0)
        w = tl.load(w_ptrs, mask=(k[:, None] < K) & (offs_n < N), other=0.0)
        acc = tl.dot(dot_operand(x), dot_operand(w), acc, input_precision=PRECISION)
    bias = tl.load(bias_ptr + offs_n * stride_b, mask=offs_n < N, other=0.0).to(tl.float32)
    tl.store(out_ptr + offs_m * N + offs_n, sigmoid_of(acc + bias), mask=(offs_m < M) & (offs_n < N))


def _tile(BLOCK_M: int, BLOCK_N: int, BLOCK_K: int, num_warps: int, num_stages: int) -> triton.Config:
    tile = {"BLOCK_M": BLOCK_M, "BLOCK_N": BLOCK_N, "BLOCK_K": BLOCK_K}
    return triton.Config(tile, num_warps=num_warps, num_stages=num_stages)


CONFIGS = [_tile(128, 128, 32, 8, 3), _tile(64, 128, 32, 4, 3), _tile(64, 64, 32, 4, 4), _tile(16, 64, 64, 4, 4)]

if INTERPRET:  # one tile that numpy multiplies fast
    TILE: dict[str, int] = {"BLOCK_M": 256, "BLOCK_N": 256, "BLOCK_K": 256}
else:  # timed once per key
    TILE = {}
    KEY = ["M", "N", "K", "stride_xm", "stride_xk", "stride_wn", "stride_wk", "PRECISION"]
    linear_sigmoid_kernel = autotune(CONFIGS, KEY)(linear_sigmoid_kernel)


@kept
def linear_sigmoid(
    x: Float[Tensor, "M K"], weight: Float[Tensor, "N K"], bias: Float[Tensor, "N"], *, precision: str = "ieee"
) -> Float[Tensor, "M N"]:
    """out = sigma(x weight^T + bias).

    Shapes: x (M, K), weight (N, K), bias (N,), any strides, K = 0 included. The output is contiguous.
    Dtypes: float32, float16, bfloat16, the same for all; float32 inside, rounded once at the end.
    Precision: "ieee" multiplies the inputs exactly (float32 without tensor cores); "tf32", for float32 only: the tensor
    cores truncate each factor to 11 significant bits.
    Tail: elements beyond M, N and K are masked. Offsets are int64.
    Errors: ValueError for other shapes, dtypes, devices or precisions; NotImplementedError for M above 2^28, N above
    2^26 or K above 2^30.
    Source: the matrix multiplication of Triton's tutorials.
    """
    M, N, K = check_linear("linear_sigmoid", x, weight, bias, precision=precision)
    check_sizes("linear_sigmoid", M, N, K)
    out = empty_output((M, N), x.dtype, x.device)
    if out.numel() > 0:
        with device_of(x):
            launch(
                linear_sigmoid_kernel,
                lambda tile: (triton.cdiv(M, tile["BLOCK_M"]) * triton.cdiv(N, tile["BLOCK_N"]),),
                x, weight, bias, out, M, N, K, *x.stride(), *weight.stride(), *bias.stride(),
                PRECISION=precision, GROUP_M=GROUP_M, **fitted(TILE, M, N, K),
            )  # fmt: skip
    return finished_output(out, x.dtype)
