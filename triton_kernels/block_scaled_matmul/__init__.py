"""Product of float8 codes in Triton: one program computes one tile and adds the scaled sum of one group at a time."""

import torch
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor

from triton_kernels._common.codes import check_float8
from triton_kernels._common.tiles import grouped_tile_any
from triton_kernels._runtime.arguments import check_sizes
from triton_kernels._runtime.autotuner import autotune
from triton_kernels._runtime.interpreter import INTERPRET, dot_operand, empty_output, finished_output
from triton_kernels._runtime.launch import device_of, kept, launch
from triton_kernels._runtime.products import GROUP, check_block_scaled_matmul

DETERMINISTIC = True
DTYPES_BEYOND = ("float8_e4m3fn",)
GROUP_M = 8  # tile rows per group of the tile scheduler


@triton.jit
def block_scaled_matmul_kernel(
    a_ptr, scale_a_ptr, b_ptr, scale_b_ptr, c_ptr, M, N, K,
    stride_am, stride_ak, stride_sam, stride_sak, stride_bn, stride_bk, stride_sbn, stride_sbk,
    GROUP: tl.constexpr, GROUP_M: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """One program computes one tile of C, [BLOCK_M, BLOCK_N], a group of GROUP terms at a time.

    The tensor cores sum the products of a group from zero; its sum times its scales is added in float32. BLOCK_N
    divides GROUP, so the tile's columns have one scale.
    """
    pid_m, pid_n = grouped_tile_any(tl.program_id(0), tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N), GROUP_M)
    rows = pid_m.to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = pid_n.to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    offs_k = tl.arange(0, GROUP).to(tl.int64)
    a_ptrs = a_ptr + rows[:, None] * stride_am + offs_k[None, :] * stride_ak  # [BLOCK_M, GROUP]
    b_ptrs = b_ptr + offs_k[:, None] * stride_bk + columns[None, :] * stride_bn  # [GROUP, BLOCK_N]
    scale_a_ptrs = scale_a_ptr + rows * stride_sam
    scale_b_ptr += (pid_n * BLOCK_N // GROUP).to(tl.int64) * stride_sbn
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, GROUP):
        a = tl.load(a_ptrs, mask=(rows[:, None] < M) & (offs_k[None, :] < K - k), other=0.0)
        b = tl.load(b_ptrs, mask=(offs_k[:, None] < K - k) & (columns[None, :] < N), other=0.0)
        scale = tl.load(scale_a_ptrs, mask=rows < M, other=0.0) * tl.load(scale_b_ptr)
        acc += tl.dot(dot_operand(a), dot_operand(b)) * scale[:, None]
        a_ptrs += tl.full((), GROUP, tl.int64) * stride_ak
        b_ptrs += tl.full((), GROUP, tl.int64) * stride_bk
        scale_a_ptrs += stride_sak
        scale_b_ptr += stride_sbk
    tl.store(c_ptr + rows[:, None] * N + columns[None, :], acc, mask=(rows[:, None] < M) & (columns[None, :] < N))


def _config(BLOCK_M: int, BLOCK_N: int, num_warps: int, num_stages: int) -> triton.Config:
    return triton.Config({"BLOCK_M": BLOCK_M, "BLOCK_N": BLOCK_N}, num_warps=num_warps, num_stages=num_stages)


CONFIGS = [
    _config(128, 128, 8, 4),
    _config(64, 128, 4, 4),
    _config(64, 64, 4, 5),
    _config(64, 32, 4, 6),
    _config(16, 64, 4, 6),
]

if INTERPRET:  # without autotuning: one tile
    TILE: dict[str, int] = {"BLOCK_M": 128, "BLOCK_N": 128}
else:
    TILE = {}
    KEY = ["M", "N", "K", "stride_am", "stride_ak", "stride_bn", "stride_bk"]
    block_scaled_matmul_kernel = autotune(CONFIGS, KEY)(block_scaled_matmul_kernel)


@kept
def block_scaled_matmul(
    a: Float[Tensor, "M K"],
    scale_a: Float[Tensor, "M G_K"],
    b: Float[Tensor, "N K"],
    scale_b: Float[Tensor, "G_N G_K"],
) -> Float[Tensor, "M N"]:
    """c[i, j] = sum over groups g of scale_a[i, g] scale_b[j // 128, g] (sum over k in g of a[i, k] b[j, k]).

    A group is 128 terms of K; the last one may have fewer.

    Shapes: a (M, K), b (N, K), scale_a (M, K / 128), scale_b (N / 128, K / 128), rounded up; any strides, K = 0
    included. The output is contiguous.
    Dtypes: float8_e4m3fn, scales float32, output bfloat16. The tensor cores sum the products of a group (on Hopper with
    14 bits); scaled sums are added in float32 and rounded once.
    Tail: loads and stores are masked; offsets are int64.
    Errors: ValueError for other shapes, dtypes or devices; NotImplementedError on a GPU before compute capability 8.9,
    and for M above 2^28, N above 2^26 or K above 2^30.
    Source: scales of blocks: DeepSeek-V3 Technical Report (2024), section 3.3.2.
    """
    M, N, K = check_block_scaled_matmul(a, scale_a, b, scale_b)
    check_sizes("block_scaled_matmul", M, N, K)
    check_float8("block_scaled_matmul", a)
    out = empty_output((M, N), torch.bfloat16, a.device)
    if M > 0 and N > 0:
        with device_of(a):
            launch(
                block_scaled_matmul_kernel,
                lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),),
                a, scale_a, b, scale_b, out, M, N, K, *a.stride(), *scale_a.stride(), *b.stride(), *scale_b.stride(),
                GROUP=GROUP, GROUP_M=GROUP_M, **TILE,
            )  # fmt: skip
    return finished_output(out, torch.bfloat16)
