"""Matrix multiplication in Triton: tiles in grouped order, and a pipelined loop over K."""

from typing import Any

import torch
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor

DETERMINISTIC = True
INTERPRET = tl.constexpr(triton.knobs.runtime.interpret)  # TRITON_INTERPRET=1 when this module was imported
DTYPES = (torch.float32, torch.float16, torch.bfloat16)
OUT_DTYPE = torch.float32 if INTERPRET else None  # the interpreter truncates to bfloat16: it leaves rounding to torch
GROUP_M = 8  # tiles are visited in bands of this many tile rows, which keeps both operands of a wave in the L2 cache


def _config(BLOCK_M: int, BLOCK_N: int, BLOCK_K: int, num_warps: int, num_stages: int) -> triton.Config:
    tile = {"BLOCK_M": BLOCK_M, "BLOCK_N": BLOCK_N, "BLOCK_K": BLOCK_K}
    return triton.Config(tile, num_warps=num_warps, num_stages=num_stages)


# Candidates by the unit that multiplies. On Hopper a warpgroup (4 warps) issues 64 rows at a time, and 256 columns use
# shared memory best; 8 warps share a tile of 128 x 256. The small tiles are for matrices of few tiles, or few rows.
HALF_CONFIGS = [
    _config(128, 256, 64, 8, 3),
    _config(128, 256, 64, 8, 4),
    _config(256, 128, 64, 8, 3),
    _config(128, 128, 64, 4, 3),
    _config(128, 128, 64, 8, 3),
    _config(64, 128, 64, 4, 4),
    _config(128, 64, 64, 4, 4),
    _config(64, 64, 64, 4, 5),
    _config(64, 32, 128, 4, 4),
    _config(64, 16, 128, 4, 4),
    _config(16, 128, 128, 4, 4),
    _config(16, 64, 128, 4, 5),
    _config(16, 32, 256, 4, 4),
]
TF32_CONFIGS = [
    _config(128, 256, 32, 8, 3),
    _config(128, 256, 32, 8, 4),
    _config(128, 128, 32, 4, 3),
    _config(128, 128, 32, 8, 4),
    _config(64, 128, 32, 4, 4),
    _config(64, 64, 32, 4, 5),
    _config(64, 16, 64, 4, 4),
    _config(16, 64, 64, 4, 5),
]
# No tensor cores: 64 accumulators a thread keep the loads from shared memory at one for every 16 multiply-adds.
IEEE_CONFIGS = [
    _config(128, 128, 16, 8, 3),
    _config(128, 128, 16, 8, 4),
    _config(128, 128, 32, 8, 2),
    _config(128, 64, 16, 4, 3),
    _config(64, 128, 16, 8, 3),
    _config(64, 64, 16, 4, 3),
    _config(32, 64, 32, 4, 3),
    _config(16, 64, 32, 4, 4),
    _config(64, 16, 32, 4, 4),
]


def _candidates(configs: list[triton.Config], args: dict[str, Any], **constants: Any) -> list[triton.Config]:
    """The configurations for the unit that multiplies, less those whose tiles overhang C too far or are too few."""
    a, M, N = args["a_ptr"], args["M"], args["N"]
    if a.dtype != torch.float32:
        configs = HALF_CONFIGS
    else:
        configs = TF32_CONFIGS if constants["PRECISION"] == "tf32" else IEEE_CONFIGS
    area = {config: config.kwargs["BLOCK_M"] * config.kwargs["BLOCK_N"] for config in configs}
    tiles = {c: triton.cdiv(M, c.kwargs["BLOCK_M"]) * triton.cdiv(N, c.kwargs["BLOCK_N"]) for c in configs}
    least = min(tiles[config] * area[config] for config in configs)
    configs = [config for config in configs if tiles[config] * area[config] <= 2 * least]
    multiprocessors = torch.cuda.get_device_properties(a.device).multi_processor_count
    enough = min(max(tiles[config] for config in configs), multiprocessors // 3)
    configs = [config for config in configs if tiles[config] >= enough]
    largest = max(area[config] for config in configs)
    return [config for config in configs if area[config] >= largest // 4]


@triton.jit
def round_to_tf32(x):
    """To the nearest tf32 (the tensor cores would truncate); the interpreter multiplies in float32 instead."""
    if INTERPRET:
        return x
    else:
        return tl.inline_asm_elementwise("cvt.rna.tf32.f32 $0, $1;", "=r,r", [x], tl.float32, is_pure=True, pack=1)


@triton.jit
def multiple(x, ALIGN: tl.constexpr):
    """x, a multiple of ALIGN, so that the compiler sees it (on its own it looks at multiples of 16 only)."""
    return x // ALIGN * ALIGN


@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    PRECISION: tl.constexpr, MASKED: tl.constexpr, GROUP_M: tl.constexpr,
    ALIGN: tl.constexpr, A_ROWS: tl.constexpr, B_ROWS: tl.constexpr, C_ROWS: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """One program computes one tile of C, [BLOCK_M, BLOCK_N], in float32 registers.

    Each step of the loop multiplies [BLOCK_M, BLOCK_K] by [BLOCK_K, BLOCK_N]; the compiler keeps num_stages of them in
    shared memory, copying the next ones asynchronously while the tensor cores work on this one. ALIGN is the number of
    elements in 16 bytes if every row of A, B and C starts and ends at a multiple of it; else 1, and the copies are of
    single elements. A_ROWS says that rows of A are rows, with stride_ak = 1, not columns, with stride_am = 1.
    """
    if ALIGN > 1:
        if A_ROWS:
            stride_am, K = multiple(stride_am, ALIGN), multiple(K, ALIGN)
        else:
            stride_ak, M = multiple(stride_ak, ALIGN), multiple(M, ALIGN)
        if B_ROWS:
            stride_bk, N = multiple(stride_bk, ALIGN), multiple(N, ALIGN)
        else:
            stride_bn, K = multiple(stride_bn, ALIGN), multiple(K, ALIGN)
        if C_ROWS:
            stride_cm, N = multiple(stride_cm, ALIGN), multiple(N, ALIGN)
        else:
            stride_cn, M = multiple(stride_cn, ALIGN), multiple(M, ALIGN)

    pid = tl.program_id(0)
    tiles_m = tl.cdiv(M, BLOCK_M)
    tiles_n = tl.cdiv(N, BLOCK_N)
    band = pid // (GROUP_M * tiles_n)
    band_rows = min(tiles_m - band * GROUP_M, GROUP_M)
    within = pid % (GROUP_M * tiles_n)
    offs_m = (band * GROUP_M + within % band_rows) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = (within // band_rows) * BLOCK_N + tl.arange(0, BLOCK_N)
    offs_k = tl.arange(0, BLOCK_K)

    a_ptrs = a_ptr + offs_m[:, None].to(tl.int64) * stride_am + offs_k[None, :].to(tl.int64) * stride_ak
    b_ptrs = b_ptr + offs_k[:, None].to(tl.int64) * stride_bk + offs_n[None, :].to(tl.int64) * stride_bn
    a_step = tl.full((), BLOCK_K, tl.int64) * stride_ak
    b_step = tl.full((), BLOCK_K, tl.int64) * stride_bk
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        if MASKED:
            a = tl.load(a_ptrs, mask=(offs_m[:, None] < M) & (offs_k[None, :] < K - k), other=0.0)
            b = tl.load(b_ptrs, mask=(offs_k[:, None] < K - k) & (offs_n[None, :] < N), other=0.0)
        else:
            a = tl.load(a_ptrs)
            b = tl.load(b_ptrs)
        if PRECISION == "tf32":
            a = round_to_tf32(a)
        if INTERPRET:  # its dot is wrong for bfloat16
            a = a.to(tl.float32)
            b = b.to(tl.float32)
        acc = tl.dot(a, b, acc, input_precision=PRECISION)
        a_ptrs += a_step
        b_ptrs += b_step

    c_ptrs = c_ptr + offs_m[:, None].to(tl.int64) * stride_cm + offs_n[None, :].to(tl.int64) * stride_cn
    if MASKED:
        tl.store(c_ptrs, acc, mask=(offs_m[:, None] < M) & (offs_n[None, :] < N))
    else:
        tl.store(c_ptrs, acc)


if INTERPRET:  # no device to time configurations on: one tile that numpy multiplies fast
    TILE: dict[str, int] = {"BLOCK_M": 256, "BLOCK_N": 256, "BLOCK_K": 256}
else:  # timed once for each key, and kept in Triton's cache directory
    TILE = {}
    matmul_kernel = triton.autotune(
        configs=HALF_CONFIGS + TF32_CONFIGS + IEEE_CONFIGS,
        key=["M", "N", "K", "stride_am", "stride_ak", "stride_bk", "stride_bn", "PRECISION"],
        prune_configs_by={"early_config_prune": _candidates},
        cache_results=True,
    )(matmul_kernel)


def _alignment(*matrices: Tensor) -> int:
    """The number of elements in 16 bytes if every row starts and ends at a multiple of it, and 1 otherwise."""
    vector = 16 // matrices[0].element_size()
    for matrix in matrices:
        along = 1 if matrix.stride(1) == 1 else 0
        if matrix.stride(along) != 1 or matrix.shape[along] % vector != 0 or matrix.stride(1 - along) % vector != 0:
            return 1
    return vector


def matmul(a: Float[Tensor, "M K"], b: Float[Tensor, "K N"], *, precision: str = "ieee") -> Float[Tensor, "M N"]:
    """C = A @ B.

    Shapes: a (M, K), b (K, N), any strides, any sizes, K = 0 included; the output is contiguous.
    Dtypes: float32, float16, bfloat16, the same for both; sums in float32, rounded once at the end.
    Precision: "ieee" multiplies exactly what it is given (float32 without tensor cores); "tf32", for float32 only,
    keeps 11 significant bits of each factor, rounding one and leaving the other for the tensor cores to truncate.
    Tail: unless every tile of every configuration fits, loads and stores are masked; offsets are int64.
    Errors: ValueError for other shapes, dtypes, devices or precisions.
    Source: the tile order and pipelined loop of Triton's matrix multiplication tutorial.
    """
    if a.ndim != 2:
        raise ValueError(f"matmul: a must be (M, K); got {tuple(a.shape)}")
    M, K = a.shape
    if b.ndim != 2 or b.shape[0] != K:
        raise ValueError(f"matmul: a is (M, K)={(M, K)}, so b must be ({K}, N); got {tuple(b.shape)}")
    N = b.shape[1]
    if a.dtype not in DTYPES:
        raise ValueError(f"matmul: a must be float32, float16 or bfloat16; got {a.dtype}")
    if b.dtype != a.dtype:
        raise ValueError(f"matmul: a is {a.dtype}, so b must be too; got {b.dtype}")
    if precision != "ieee" and (precision != "tf32" or a.dtype != torch.float32):
        raise ValueError(f'matmul: precision must be "ieee", or "tf32" for float32; got "{precision}" for {a.dtype}')
    if b.device != a.device:
        raise ValueError(f"matmul: a is on {a.device}, so b must be too; got {b.device}")
    if not (a.is_cuda or INTERPRET):
        raise ValueError(
            f"matmul: a is on {a.device}; pass CUDA tensors, or set TRITON_INTERPRET=1 before importing this module"
        )
    if a.is_cuda and a.device.index != torch.cuda.current_device():
        with torch.cuda.device(a.device):
            return matmul(a, b, precision=precision)

    if K == 0:
        return torch.zeros((M, N), dtype=a.dtype, device=a.device)
    out = torch.empty((M, N), dtype=OUT_DTYPE or a.dtype, device=a.device)
    if M > 0 and N > 0:
        c = out
        if precision == "tf32" and b.stride(0) != 1 and a.stride(1) == 1:
            # Hopper's tensor cores read the right operand from shared memory, and 32-bit numbers only with K
            # contiguous; the left one, rounded above, comes from registers. So C^T = B^T A^T where that suits better.
            a, b, c, M, N = b.t(), a.t(), out.t(), N, M
        masked = M % 256 != 0 or N % 256 != 0 or K % 256 != 0
        matmul_kernel[lambda tile: (triton.cdiv(M, tile["BLOCK_M"]) * triton.cdiv(N, tile["BLOCK_N"]),)](
            a, b, c, M, N, K, *a.stride(), *b.stride(), *c.stride(),
            PRECISION=precision, MASKED=masked, GROUP_M=GROUP_M, ALIGN=_alignment(a, b, c) if masked else 1,
            A_ROWS=a.stride(1) == 1, B_ROWS=b.stride(1) == 1, C_ROWS=c.stride(1) == 1, **TILE,
        )  # fmt: skip
    return out.to(a.dtype) if INTERPRET else out
