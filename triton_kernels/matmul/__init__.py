"""Matrix multiplication in Triton: one program computes one tile; tiles run in groups that share operands in L2."""

from typing import Any

import torch
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor

from triton_kernels._common.tiles import grouped_tile_any
from triton_kernels._runtime.arguments import check_sizes
from triton_kernels._runtime.autotuner import autotune
from triton_kernels._runtime.contract import check_matmul
from triton_kernels._runtime.interpreter import (
    INTERPRET,
    dot_operand,
    empty_output,
    finished_output,
    fitted,
    working_type,
)
from triton_kernels._runtime.launch import device_of, kept, launch

DETERMINISTIC = True
DTYPES_BEYOND = ("float8_e4m3fn", "float64")
GROUP_M = 8  # tile rows per group of the tile scheduler
STEP_BYTES = 128  # bytes of a row of A per step: one cache line


@triton.jit
def multiply_add(a, b, acc, PRECISION: tl.constexpr):
    """acc + a b. "promoted" adds sums of 128 float8 products in float32; "fast" adds all in the tensor cores."""
    a = dot_operand(a)
    b = dot_operand(b)
    if PRECISION == "promoted":
        BLOCK_K: tl.constexpr = a.shape[1]
        acc = tl.dot(a, b, acc, max_num_imprecise_acc=BLOCK_K if BLOCK_K < 128 else 128)
    elif PRECISION == "fast":
        acc = tl.dot(a, b, acc)
    else:
        acc = tl.dot(a, b, acc, input_precision=PRECISION, out_dtype=acc.dtype)
    return acc


@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, scale_a_ptr, scale_b_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn,
    PRECISION: tl.constexpr, GROUP_M: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """One program computes one tile of C, [BLOCK_M, BLOCK_N], in float32 registers, BLOCK_K terms of K at a time."""
    pid_m, pid_n = grouped_tile_any(tl.program_id(0), tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N), GROUP_M)
    offs_m = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]  # [BLOCK_M, 1]
    offs_n = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]  # [1, BLOCK_N]
    offs_k = tl.arange(0, BLOCK_K)
    a_ptrs = a_ptr + offs_m.to(tl.int64) * stride_am + offs_k[None, :].to(tl.int64) * stride_ak  # [BLOCK_M, BLOCK_K]
    b_ptrs = b_ptr + offs_k[:, None].to(tl.int64) * stride_bk + offs_n.to(tl.int64) * stride_bn  # [BLOCK_K, BLOCK_N]
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=working_type(a_ptr.dtype))
    for k in range(0, K, BLOCK_K):
        a = tl.load(a_ptrs, mask=(offs_m < M) & (offs_k[None, :] < K - k), other=0.0)
        b = tl.load(b_ptrs, mask=(offs_k[:, None] < K - k) & (offs_n < N), other=0.0)
        acc = multiply_add(a, b, acc, PRECISION)
        a_ptrs += tl.full((), BLOCK_K, tl.int64) * stride_ak
        b_ptrs += tl.full((), BLOCK_K, tl.int64) * stride_bk
    if scale_a_ptr is not None:
        acc *= tl.load(scale_a_ptr) * tl.load(scale_b_ptr)
    tl.store(c_ptr + offs_m.to(tl.int64) * N + offs_n, acc, mask=(offs_m < M) & (offs_n < N))


def _config(BLOCK_M: int, BLOCK_N: int, num_warps: int, num_stages: int) -> triton.Config:
    return triton.Config({"BLOCK_M": BLOCK_M, "BLOCK_N": BLOCK_N}, num_warps=num_warps, num_stages=num_stages)


CONFIGS = [
    _config(128, 128, 8, 4),
    _config(64, 128, 4, 4),
    _config(64, 64, 4, 4),
    _config(64, 16, 4, 4),
    _config(16, 64, 4, 4),
    _config(128, 256, 8, 3),
]


def short_list(configs: list[triton.Config], args: dict[str, Any], **constants: Any) -> list[triton.Config]:
    """Drops the last tile if it would spill registers: for products without tensor cores and for promoted sums."""
    precision = constants["PRECISION"]
    spills = precision == "promoted" or (precision == "ieee" and args["a_ptr"].dtype in (torch.float32, torch.float64))
    return configs[:-1] if spills else configs


if INTERPRET:  # without autotuning: one tile that numpy multiplies fast
    TILE: dict[str, int] = {"BLOCK_M": 256, "BLOCK_N": 256, "BLOCK_K": 256}
else:
    TILE = {}
    KEY = ["M", "N", "K", "stride_am", "stride_ak", "stride_bk", "stride_bn", "PRECISION"]
    matmul_kernel = autotune(CONFIGS, KEY, short_list)(matmul_kernel)


@kept
def matmul(
    a: Float[Tensor, "M K"],
    b: Float[Tensor, "K N"],
    scale_a: Float[Tensor, ""] | None = None,
    scale_b: Float[Tensor, ""] | None = None,
    *,
    precision: str = "ieee",
) -> Float[Tensor, "M N"]:
    """C = A @ B; for float8 C = scale_a * scale_b * A @ B.

    Shapes: a (M, K), b (K, N), any strides, K = 0 included; the output is contiguous.
    Dtypes: float32, float16, bfloat16, the same for both; sums in float32, rounded once at the end. float8_e4m3fn, with
    a float32 scale of shape () for each of the two, gives bfloat16.
    Precision: "ieee" multiplies the inputs exactly (float32 without tensor cores); "tf32", for float32 only: the tensor
    cores truncate each factor to 11 significant bits. Hopper's tensor cores keep 14 bits of float8 sums: "promoted"
    adds sums of 128 products in float32, "fast" leaves all sums to the tensor cores.
    Tail: loads and stores are masked; offsets are int64.
    Errors: ValueError for other shapes, dtypes, scales, devices or precisions; NotImplementedError for M above 2^28,
    N above 2^26 or K above 2^30.
    Source: Triton's matrix multiplication tutorial.
    """
    check_matmul(a, b, scale_a, scale_b, precision=precision, float8=True, float64=True)
    (M, K), N = a.shape, b.shape[1]
    check_sizes("matmul", M, N, K)
    dtype = torch.bfloat16 if a.dtype == torch.float8_e4m3fn else a.dtype
    out = empty_output((M, N), dtype, a.device)
    tile = fitted(TILE, M, N, K) or {"BLOCK_K": STEP_BYTES // a.element_size()}
    if M > 0 and N > 0:
        with device_of(a):
            launch(
                matmul_kernel, lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),),
                a, b, out, scale_a, scale_b, M, N, K, *a.stride(), *b.stride(),
                PRECISION=precision, GROUP_M=GROUP_M, **tile,
            )  # fmt: skip
    return finished_output(out, dtype)
