"""The gradients of rms_norm, and of layer_norm (CENTERED): kernels and their launches.

With xhat = (x - mean) s and g = dy w: dx = s (g - a - xhat b), a = mean(g), b = mean(g xhat); dweight and dbias are the
sums over rows of dy xhat and of dy. In rms_norm a and mean are 0, and there is no bias.
"""

from math import isqrt

import torch
import triton
import triton.language as tl
from torch import Tensor

from triton_kernels._common.rows import blocks
from triton_kernels._runtime.interpreter import INTERPRET, empty_output, finished_output
from triton_kernels._runtime.launch import device_of, launch

WARPS = 16  # per multiprocessor: each thread has up to 128 registers
SUM_COLUMNS, SUM_ROWS = (1024, 64) if INTERPRET else (32, 64)  # tile of the sums of columns
WIDTH = 2**14 if INTERPRET else 256  # columns per program that adds the rows of long columns


@triton.jit
def norm_grad_kernel(
    x_ptr, weight_ptr, dy_ptr, dx_ptr, partial_ptr, M, N, stride_xm, stride_xn, stride_w, stride_ym, stride_yn, eps,
    CENTERED: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """One program takes every num_programs-th block of BLOCK_M rows, [BLOCK_M, BLOCK_N], and reads it once. It adds its
    rows' dy xhat, and dy, in registers, and stores these sums as its row of `partial`."""
    offs_n = tl.arange(0, BLOCK_N)[None, :]
    wide_n = offs_n.to(tl.int64)
    weight = tl.load(weight_ptr + wide_n * stride_w, mask=offs_n < N, other=0.0).to(tl.float32)
    dweight = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    dbias = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    programs = tl.num_programs(0)
    for block in range(tl.program_id(0), tl.cdiv(M, BLOCK_M), programs):
        offs_m = block * BLOCK_M + tl.arange(0, BLOCK_M).to(tl.int64)[:, None]
        mask = (offs_m < M) & (offs_n < N)
        x = tl.load(x_ptr + offs_m * stride_xm + wide_n * stride_xn, mask=mask, other=0.0).to(tl.float32)
        dy = tl.load(dy_ptr + offs_m * stride_ym + wide_n * stride_yn, mask=mask, other=0.0).to(tl.float32)
        g = dy * weight
        if CENTERED:
            x = tl.where(offs_n < N, x - (tl.sum(x, 1) / N)[:, None], 0.0)
            g = g - (tl.sum(g, 1) / N)[:, None]
        scale = tl.rsqrt(tl.sum(x * x, 1) / N + eps)[:, None]
        xhat = x * scale
        b = (tl.sum(g * xhat, 1) / N)[:, None]
        tl.store(dx_ptr + offs_m * N + offs_n, (g - xhat * b) * scale, mask=mask)
        dweight += dy * xhat
        if CENTERED:
            dbias += dy
    offs = tl.arange(0, BLOCK_N)
    to_ptr = partial_ptr + tl.program_id(0).to(tl.int64) * N + offs
    tl.store(to_ptr, tl.sum(dweight, 0), mask=offs < N)
    if CENTERED:
        tl.store(to_ptr + programs.to(tl.int64) * N, tl.sum(dbias, 0), mask=offs < N)


@triton.jit
def long_norm_grad_kernel(
    x_ptr, weight_ptr, dy_ptr, dx_ptr, statistics_ptr, N, stride_xm, stride_xn, stride_w, stride_ym, stride_yn, eps,
    CENTERED: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """One program computes one row of dx in blocks of BLOCK_N, and stores the row's mean and scale. It reads the row
    two or three times, from the second time on from the L2 cache."""
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * stride_xm
    dy_ptr += row * stride_ym
    offs_n = tl.arange(0, BLOCK_N).to(tl.int64)
    mean = 0.0
    a = 0.0
    if CENTERED:
        sums = tl.zeros((BLOCK_N,), tl.float32)
        of_g = tl.zeros((BLOCK_N,), tl.float32)
        for start in range(0, N, BLOCK_N):
            offs = start + offs_n
            sums += tl.load(x_ptr + offs * stride_xn, mask=offs < N, other=0.0).to(tl.float32)
            dy = tl.load(dy_ptr + offs * stride_yn, mask=offs < N, other=0.0).to(tl.float32)
            of_g += dy * tl.load(weight_ptr + offs * stride_w, mask=offs < N, other=0.0).to(tl.float32)
        mean = tl.sum(sums, 0) / N
        a = tl.sum(of_g, 0) / N
    squares = tl.zeros((BLOCK_N,), tl.float32)
    products = tl.zeros((BLOCK_N,), tl.float32)
    for start in range(0, N, BLOCK_N):
        offs = start + offs_n
        x = tl.load(x_ptr + offs * stride_xn, mask=offs < N, other=0.0).to(tl.float32)
        x = tl.where(offs < N, x - mean, 0.0)
        dy = tl.load(dy_ptr + offs * stride_yn, mask=offs < N, other=0.0).to(tl.float32)
        squares += x * x
        products += x * dy * tl.load(weight_ptr + offs * stride_w, mask=offs < N, other=0.0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(squares, 0) / N + eps)
    b = tl.sum(products, 0) / N * scale
    for start in range(0, N, BLOCK_N):
        offs = start + offs_n
        x = tl.load(x_ptr + offs * stride_xn, mask=offs < N, other=0.0).to(tl.float32)
        dy = tl.load(dy_ptr + offs * stride_yn, mask=offs < N, other=0.0).to(tl.float32)
        g = dy * tl.load(weight_ptr + offs * stride_w, mask=offs < N, other=0.0).to(tl.float32)
        tl.store(dx_ptr + row * N + offs, (g - a - (x - mean) * scale * b) * scale, mask=offs < N)
    tl.store(statistics_ptr + 2 * row, mean)
    tl.store(statistics_ptr + 2 * row + 1, scale)


@triton.jit
def long_weight_grad_kernel(
    x_ptr, dy_ptr, statistics_ptr, partial_ptr, M, N, stride_xm, stride_xn, stride_ym, stride_yn,
    CENTERED: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Program (part, block) adds every num_programs-th row of BLOCK_N columns."""
    offs = tl.program_id(1).to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    dweight = tl.zeros((BLOCK_N,), tl.float32)
    dbias = tl.zeros((BLOCK_N,), tl.float32)
    parts = tl.num_programs(0)
    for number in range(tl.program_id(0), M, parts):
        row = number + tl.zeros((1,), tl.int64)
        x = tl.load(x_ptr + row * stride_xm + offs * stride_xn, mask=offs < N, other=0.0).to(tl.float32)
        dy = tl.load(dy_ptr + row * stride_ym + offs * stride_yn, mask=offs < N, other=0.0).to(tl.float32)
        mean = tl.load(statistics_ptr + 2 * row)
        dweight += dy * ((x - mean) * tl.load(statistics_ptr + 2 * row + 1))
        dbias += dy
    to_ptr = partial_ptr + tl.program_id(0).to(tl.int64) * N + offs
    tl.store(to_ptr, dweight, mask=offs < N)
    if CENTERED:
        tl.store(to_ptr + parts.to(tl.int64) * N, dbias, mask=offs < N)


@triton.jit
def column_sums_kernel(partial_ptr, out_ptr, first, parts, N, BLOCK_P: tl.constexpr, BLOCK_N: tl.constexpr):
    """One program adds the rows of BLOCK_N columns of (parts, N) numbers, from number `first` on, in a fixed order."""
    partial_ptr += first
    offs_n = tl.program_id(0).to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    sums = tl.zeros((BLOCK_P, BLOCK_N), tl.float32)
    for start in range(0, parts, BLOCK_P):
        offs_p = start + tl.arange(0, BLOCK_P)[:, None]
        mask = (offs_p < parts) & (offs_n[None, :] < N)
        sums += tl.load(partial_ptr + offs_p.to(tl.int64) * N + offs_n[None, :], mask=mask, other=0.0)
    tl.store(out_ptr + offs_n, tl.sum(sums, 0), mask=offs_n < N)


def norm_grads(x: Tensor, weight: Tensor, dy: Tensor, eps: float, *, centered: bool) -> tuple[Tensor, ...]:
    """dx, dweight, and if centered dbias, of checked operands."""
    M, N = x.shape
    dx = empty_output((M, N), x.dtype, x.device)
    sums = [empty_output((N,), x.dtype, x.device) for _ in range(2 if centered else 1)]
    if x.numel() == 0:
        return dx.to(x.dtype), *(each.zero_().to(x.dtype) for each in sums)
    block = blocks(N)
    strides = (*x.stride(), weight.stride(0), *dy.stride())
    programs = _programs(x, WARPS // block.warps) if block.holds_row else isqrt(M - 1) + 1
    parts = min(programs, block.grid(M)[0])
    partial = torch.empty(len(sums) * parts * N, dtype=torch.float32, device=x.device)
    with device_of(x):
        if block.holds_row:
            launch(
                norm_grad_kernel, (parts,),
                x, weight, dy, dx, partial, M, N, *strides, eps, centered, block.rows, block.columns,
                num_warps=block.warps,
            )  # fmt: skip
        else:
            statistics = torch.empty(2 * M, dtype=torch.float32, device=x.device)
            launch(
                long_norm_grad_kernel, (M,),
                x, weight, dy, dx, statistics, N, *strides, eps, centered, block.columns, num_warps=block.warps,
            )  # fmt: skip
            launch(
                long_weight_grad_kernel, (parts, triton.cdiv(N, WIDTH)),
                x, dy, statistics, partial, M, N, *x.stride(), *dy.stride(), centered, WIDTH, num_warps=4,
            )  # fmt: skip
        for number, out in enumerate(sums):
            launch(
                column_sums_kernel, (triton.cdiv(N, SUM_COLUMNS),),
                partial, out, number * parts * N, parts, N, SUM_ROWS, SUM_COLUMNS, num_warps=4,
            )  # fmt: skip
    return finished_output(dx, x.dtype), *(finished_output(each, x.dtype) for each in sums)


def _programs(x: Tensor, each: int) -> int:
    """Programs that run at a time, `each` per multiprocessor; a few in the interpreter."""
    return max(each, 1) * torch.cuda.get_device_properties(x.device).multi_processor_count if x.is_cuda else 3
