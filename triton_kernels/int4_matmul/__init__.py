"""Product with weights of 4 bits in Triton: one program computes one tile and adds the scaled sums of one group."""

import triton
import triton.language as tl
from jaxtyping import Float, UInt8
from torch import Tensor

from triton_kernels._common.tiles import grouped_tile_any
from triton_kernels._runtime.arguments import check_sizes
from triton_kernels._runtime.autotuner import autotune
from triton_kernels._runtime.interpreter import INTERPRET, dot_operand, empty_output, finished_output
from triton_kernels._runtime.launch import device_of, kept, launch
from triton_kernels._runtime.products import GROUP, check_int4_matmul

DETERMINISTIC = True
GROUP_M = 8  # tile rows per group of the tile scheduler


@triton.jit
def weights_of(packed, zero, dtype: tl.constexpr):
    """The weights without their scales, [BLOCK_N, GROUP]: codes less zero points are integers, and exact in 16 bits.

    packed: bytes of two codes, [BLOCK_N, GROUP / 2]. zero: [BLOCK_N].
    """
    codes = tl.interleave(packed & 15, packed >> 4).to(tl.int16)
    return (codes - zero[:, None]).to(tl.float32).to(dtype)


@triton.jit
def int4_matmul_kernel(
    x_ptr, weight_ptr, scale_ptr, zero_ptr, y_ptr, M, N, K,
    stride_xm, stride_xk, stride_wn, stride_wk, stride_sn, stride_sk, stride_zn, stride_zk,
    GROUP: tl.constexpr, GROUP_M: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """One program computes one tile of Y, [BLOCK_M, BLOCK_N], a group of GROUP terms at a time.

    The tensor cores sum the products of a group from zero; its sum times its scale is added in float32.
    """
    pid_m, pid_n = grouped_tile_any(tl.program_id(0), tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N), GROUP_M)
    rows = pid_m.to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = pid_n.to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    offs_k, offs_byte = tl.arange(0, GROUP).to(tl.int64), tl.arange(0, GROUP // 2).to(tl.int64)
    x_ptrs = x_ptr + rows[:, None] * stride_xm + offs_k[None, :] * stride_xk  # [BLOCK_M, GROUP]
    weight_ptrs = weight_ptr + columns[:, None] * stride_wn + offs_byte[None, :] * stride_wk  # [BLOCK_N, GROUP // 2]
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, GROUP):
        group = tl.full((), k // GROUP, tl.int64)
        x = tl.load(x_ptrs, mask=(rows[:, None] < M) & (offs_k[None, :] < K - k), other=0.0)
        inside = (columns[:, None] < N) & (2 * offs_byte[None, :] < K - k)
        packed = tl.load(weight_ptrs, mask=inside, other=0)
        scale = tl.load(scale_ptr + columns * stride_sn + group * stride_sk, mask=columns < N, other=0.0)
        if zero_ptr is None:
            zero = tl.full((BLOCK_N,), 8, tl.int16)
        else:
            zeros = zero_ptr + columns * stride_zn + group * stride_zk
            zero = tl.load(zeros, mask=columns < N, other=0).to(tl.int16)
        weights = weights_of(packed, zero, x.dtype)
        acc += tl.dot(dot_operand(x), dot_operand(weights).T) * scale.to(tl.float32)[None, :]
        x_ptrs += tl.full((), GROUP, tl.int64) * stride_xk
        weight_ptrs += tl.full((), GROUP // 2, tl.int64) * stride_wk
    tl.store(y_ptr + rows[:, None] * N + columns[None, :], acc, mask=(rows[:, None] < M) & (columns[None, :] < N))


def _config(BLOCK_M: int, BLOCK_N: int, num_warps: int, num_stages: int) -> triton.Config:
    return triton.Config({"BLOCK_M": BLOCK_M, "BLOCK_N": BLOCK_N}, num_warps=num_warps, num_stages=num_stages)


CONFIGS = [
    _config(128, 64, 8, 3),
    _config(64, 64, 8, 4),
    _config(32, 64, 4, 5),
    _config(16, 128, 8, 4),
    _config(16, 64, 4, 5),
    _config(16, 32, 4, 6),
]

if INTERPRET:  # without autotuning: one tile
    TILE: dict[str, int] = {"BLOCK_M": 128, "BLOCK_N": 128}
else:
    TILE = {}
    KEY = ["M", "N", "K", "stride_xm", "stride_xk", "stride_wn", "stride_wk"]
    int4_matmul_kernel = autotune(CONFIGS, KEY)(int4_matmul_kernel)


@kept
def int4_matmul(
    x: Float[Tensor, "M K"],
    weight: UInt8[Tensor, "N K_2"],
    scale: Float[Tensor, "N G_K"],
    zero: UInt8[Tensor, "N G_K"] | None = None,
) -> Float[Tensor, "M N"]:
    """y[m, n] = sum over groups g of scale[n, g] (sum over k in g of x[m, k] (code[n, k] - zero[n, g])).

    A group is 128 terms of K; the last one may have fewer.

    Shapes: x (M, K), weight (N, K / 2) with two codes a byte, the lower first, scale and zero (N, K / 128), rounded up;
    any strides, K = 0 included. The output is contiguous. zero is 8 if it is not given.
    Dtypes: float16 and bfloat16, weight and zero uint8. Weights are not rounded: the scales multiply the sums of
    groups. Sums are float32, rounded once.
    Tail: loads and stores are masked; offsets are int64.
    Errors: ValueError for other shapes, dtypes or devices; NotImplementedError for M above 2^28, N above 2^26 or K
    above 2^30.
    Source: weights of 4 bits with scales of groups: Frantar et al., "GPTQ" (2022).
    """
    M, N, K = check_int4_matmul(x, weight, scale, zero)
    check_sizes("int4_matmul", M, N, K)
    out = empty_output((M, N), x.dtype, x.device)
    if M > 0 and N > 0:
        with device_of(x):
            launch(
                int4_matmul_kernel,
                lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),),
                x, weight, scale, zero, out, M, N, K, *x.stride(), *weight.stride(), *scale.stride(),
                *(scale if zero is None else zero).stride(), GROUP=GROUP, GROUP_M=GROUP_M, **TILE,
            )  # fmt: skip
    return finished_output(out, x.dtype)
