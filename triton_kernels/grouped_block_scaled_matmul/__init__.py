"""Products of each expert's rows with its weights in float8 in Triton: tiles of experts, and scales of groups."""

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Int32
from torch import Tensor

from triton_kernels._common.codes import check_float8
from triton_kernels._runtime.autotuner import autotune
from triton_kernels._runtime.experts import check_grouped_block_scaled_matmul
from triton_kernels._runtime.interpreter import INTERPRET, dot_operand, empty_output, finished_output
from triton_kernels._runtime.launch import device_of, kept, launch
from triton_kernels._runtime.products import GROUP
from triton_kernels.grouped_matmul import check_sizes, experts_of, find_rows

DETERMINISTIC = True
DTYPES_BEYOND = ("float8_e4m3fn",)


@triton.jit
def grouped_block_scaled_kernel(
    x_ptr, scale_x_ptr, w_ptr, scale_w_ptr, sizes_ptr, y_ptr, T, E, K, N,
    stride_xt, stride_xk, stride_sxt, stride_sxk, stride_we, stride_wn, stride_wk, stride_swe, stride_swn, stride_swk,
    stride_s, EXPERTS: tl.constexpr, GROUP: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """One program computes up to BLOCK_M rows of one expert and BLOCK_N columns, a group of GROUP terms at a time.

    The tensor cores sum the products of a group from zero; its sum times its scales is added in float32. BLOCK_N
    divides GROUP, so the tile's columns have one scale.
    """
    tiles_n = tl.cdiv(N, BLOCK_N)
    expert, row, end = find_rows(sizes_ptr, stride_s, E, tl.program_id(0) // tiles_n, BLOCK_M, EXPERTS)
    end = tl.minimum(end, T)
    if expert < E:
        column = tl.program_id(0) % tiles_n * BLOCK_N
        rows = (row + tl.arange(0, BLOCK_M)).to(tl.int64)
        columns = (column + tl.arange(0, BLOCK_N)).to(tl.int64)
        offs_k = tl.arange(0, GROUP).to(tl.int64)
        w_ptr += expert.to(tl.int64) * stride_we
        scale_w_ptr += expert.to(tl.int64) * stride_swe + (column // GROUP).to(tl.int64) * stride_swn
        x_ptrs = x_ptr + rows[:, None] * stride_xt + offs_k[None, :] * stride_xk  # [BLOCK_M, GROUP]
        w_ptrs = w_ptr + offs_k[:, None] * stride_wk + columns[None, :] * stride_wn  # [GROUP, BLOCK_N]
        scale_x_ptrs = scale_x_ptr + rows * stride_sxt
        acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        for k in range(0, K, GROUP):
            x = tl.load(x_ptrs, mask=(rows[:, None] < end) & (offs_k[None, :] < K - k), other=0.0)
            w = tl.load(w_ptrs, mask=(offs_k[:, None] < K - k) & (columns[None, :] < N), other=0.0)
            scale = tl.load(scale_x_ptrs, mask=rows < end, other=0.0) * tl.load(scale_w_ptr)
            acc += tl.dot(dot_operand(x), dot_operand(w)) * scale[:, None]
            x_ptrs += tl.full((), GROUP, tl.int64) * stride_xk
            w_ptrs += tl.full((), GROUP, tl.int64) * stride_wk
            scale_x_ptrs += stride_sxk
            scale_w_ptr += stride_swk
        tl.store(y_ptr + rows[:, None] * N + columns[None, :], acc, mask=(rows[:, None] < end) & (columns[None, :] < N))


def _config(BLOCK_M: int, BLOCK_N: int, num_warps: int, num_stages: int) -> triton.Config:
    return triton.Config({"BLOCK_M": BLOCK_M, "BLOCK_N": BLOCK_N}, num_warps=num_warps, num_stages=num_stages)


CONFIGS = [_config(128, 128, 8, 4), _config(64, 128, 4, 4), _config(64, 64, 4, 5), _config(16, 64, 4, 6)]
if INTERPRET:  # without autotuning: one tile that numpy multiplies fast
    TILE: dict[str, int] = {"BLOCK_M": 128, "BLOCK_N": 128}
else:
    TILE = {}
    KEY = ["T", "E", "K", "N", "stride_xt", "stride_xk", "stride_we", "stride_wn", "stride_wk"]
    grouped_block_scaled_kernel = autotune(CONFIGS, KEY)(grouped_block_scaled_kernel)


@kept
def grouped_block_scaled_matmul(
    x: Float[Tensor, "T K"],
    scale_x: Float[Tensor, "T G_K"],
    weight: Float[Tensor, "E N K"],
    scale_weight: Float[Tensor, "E G_N G_K"],
    sizes: Int32[Tensor, "E"],
) -> Float[Tensor, "T N"]:
    """y[t, n] = sum over groups g of scale_x[t, g] scale_weight[e, n // 128, g] (sum over k in g of x[t, k] w[e, n, k])

    Row t is among the sizes[e] rows of expert e; a group is 128 terms of K; the last one may have fewer. The rows are
    in the order of the experts; sizes are not negative, and their sum is T. The host does not read them: it launches
    as many programs as there can be tiles, T / BLOCK_M plus one for each expert.

    Shapes: x (T, K), weight (E, N, K), sizes (E,), scale_x (T, K / 128), scale_weight (E, N / 128, K / 128), rounded
    up; any strides, K = 0 included. The output is contiguous.
    Dtypes: float8_e4m3fn, scales float32, sizes int32, output bfloat16. The tensor cores sum the products of a group
    (on Hopper with 14 bits); scaled sums are added in float32 and rounded once.
    Tail: rows of the next expert are neither read nor written; offsets are int64.
    Errors: ValueError for other shapes, dtypes or devices; NotImplementedError on a GPU before compute capability 8.9,
    and for T, E, K or N above 2^26.
    Source: the kernels of grouped_matmul and block_scaled_matmul, in one.
    """
    T, E, K, N = check_grouped_block_scaled_matmul(x, scale_x, weight, scale_weight, sizes)
    check_sizes("grouped_block_scaled_matmul", T, E, K, N)
    check_float8("grouped_block_scaled_matmul", x)
    out = empty_output((T, N), torch.bfloat16, x.device)
    if T > 0 and N > 0:
        with device_of(x):
            launch(
                grouped_block_scaled_kernel,
                lambda meta: ((T // meta["BLOCK_M"] + min(T, E)) * triton.cdiv(N, meta["BLOCK_N"]),),
                x, scale_x, weight, scale_weight, sizes, out, T, E, K, N,
                *x.stride(), *scale_x.stride(), *weight.stride(), *scale_weight.stride(), *sizes.stride(),
                EXPERTS=experts_of(E), GROUP=GROUP, **TILE,
            )  # fmt: skip
    return finished_output(out, torch.bfloat16)
