"""Matrix multiplication in Triton: float32 accuracy from bfloat16 tensor cores, by splitting each number in three."""

import itertools
from typing import Any

import torch
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

ARITHMETIC = "6 x bfloat16"
INTERPRET = tl.constexpr(triton.knobs.runtime.interpret)  # TRITON_INTERPRET=1 when this module was imported
GROUP_M = 8  # tiles are visited in bands of this many tile rows, which keeps both operands of a wave in the L2 cache
INFINITY = tl.constexpr(float("inf"))


@triton.jit
def power_of_two(exponent):
    """2^exponent, for exponents of normal numbers."""
    return ((exponent + 127) << 23).to(tl.float32, bitcast=True)


@triton.jit
def round_to_bfloat16(x):
    """To the nearest, ties to even, and still a float32. (In the interpreter a conversion would truncate.)"""
    bits = x.to(tl.int32, bitcast=True)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) & -0x10000).to(tl.float32, bitcast=True)


@triton.jit
def split_kernel(
    x_ptr, planes_ptr, exponents_ptr, R, K, stride_r, stride_k, pitch, BLOCK_R: tl.constexpr, BLOCK_K: tl.constexpr
):
    """One program scales BLOCK_R rows of X, each by a power of two that takes its largest element to [1, 2), and
    splits every element into three bfloat16 numbers: 3 x 8 bits, the 24 of a float32, and their sum is exact.

    planes (3, R, pitch) gets the three, leading bits first; exponents (R,) what the scaling took away. It keeps the
    parts of small numbers above the subnormal range, and sums of large ones below infinity. An infinity is not scaled,
    and the lower parts of infinities and NaN are zero.
    """
    offs_r = tl.program_id(0).to(tl.int64) * BLOCK_R + tl.arange(0, BLOCK_R)[:, None]  # [BLOCK_R, 1]
    offs_k = tl.arange(0, BLOCK_K)[None, :]  # [1, BLOCK_K]
    x_ptrs = x_ptr + offs_r * stride_r + offs_k.to(tl.int64) * stride_k
    step = tl.full((), BLOCK_K, tl.int64) * stride_k

    largest = tl.zeros((BLOCK_R, 1), tl.float32)
    ptrs = x_ptrs
    for k in range(0, K, BLOCK_K):
        size = tl.abs(tl.load(ptrs, mask=(offs_r < R) & (offs_k < K - k), other=0.0))
        largest = tl.maximum(largest, tl.max(tl.where(size < INFINITY, size, 0.0), axis=1, keep_dims=True))
        ptrs += step
    subnormal = largest < 2.0**-126
    largest = tl.where(subnormal, largest * 2.0**24, largest)
    exponent = (largest.to(tl.int32, bitcast=True) >> 23) - tl.where(subnormal, 127 + 24, 127)
    exponent = tl.where(largest > 0, exponent, 0)
    tl.store(exponents_ptr + offs_r, exponent, mask=offs_r < R)
    half = (-exponent) >> 1  # in two steps: 2^149 is not a float32
    scale, scale_more = power_of_two(half), power_of_two(-exponent - half)

    ptrs = x_ptrs
    plane = tl.full((), pitch, tl.int64) * R
    planes_ptrs = planes_ptr + offs_r * pitch + offs_k
    for k in range(0, K, BLOCK_K):
        inside = (offs_r < R) & (offs_k < K - k)
        x = tl.load(ptrs, mask=inside, other=0.0) * scale * scale_more
        finite = tl.abs(x) < INFINITY
        first = tl.where(finite, round_to_bfloat16(x), x)
        rest = tl.where(finite, x - first, 0.0)
        second = round_to_bfloat16(rest)
        tl.store(planes_ptrs, first.to(tl.bfloat16), mask=inside)
        tl.store(planes_ptrs + plane, second.to(tl.bfloat16), mask=inside)
        tl.store(planes_ptrs + 2 * plane, (rest - second).to(tl.bfloat16), mask=inside)
        ptrs += step
        planes_ptrs += BLOCK_K


@triton.jit
def dot(a, b, acc):
    """acc + A B^T on tensor cores; the interpreter's product is wrong for bfloat16."""
    if INTERPRET:
        a = a.to(tl.float32)
        b = b.to(tl.float32)
    return tl.dot(a, b.T, acc)


@triton.jit(do_not_specialize=["M", "K"])
def matmul_kernel(
    a_desc, b_desc, c_ptr, a_exponents_ptr, b_exponents_ptr, M, N, K,
    ALL_PRODUCTS: tl.constexpr, GROUP_M: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """One program computes one tile of C, [BLOCK_M, BLOCK_N], from the planes a1, a2, a3 of A and b1, b2, b3 of B^T.

    a b = a1 b1 + (a1 b2 + a2 b1) + (a1 b3 + a2 b2 + a3 b1), without what is below 2^-24 of it: six products of
    bfloat16, each exact in float32. Tensor cores truncate their sums, always towards zero, which over a long K would
    exceed what rounding to nearest does. So they add only BLOCK_K of the leading products at a time, and acc takes
    these sums in float32 additions that round. The others are 2^-8 of those: their truncation does not matter.
    """
    pid = tl.program_id(0)
    tiles_m = tl.cdiv(M, BLOCK_M)
    tiles_n = tl.cdiv(N, BLOCK_N)
    band = pid // (GROUP_M * tiles_n)
    band_rows = min(tiles_m - band * GROUP_M, GROUP_M)
    within = pid % (GROUP_M * tiles_n)
    off_m = (band * GROUP_M + within % band_rows) * BLOCK_M
    off_n = (within // band_rows) * BLOCK_N

    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    lower = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        # A block that reaches beyond M reads on in the next plane: rows of C that are not stored.
        a1 = a_desc.load([off_m, k])
        b1 = b_desc.load([off_n, k])
        a2 = a_desc.load([M + off_m, k])
        b2 = b_desc.load([N + off_n, k])
        a3 = a_desc.load([2 * M + off_m, k])
        b3 = b_desc.load([2 * N + off_n, k])
        if ALL_PRODUCTS:
            lower = dot(a2, b3, dot(a3, b2, lower))
        lower = dot(a1, b3, lower)
        lower = dot(a3, b1, lower)
        lower = dot(a2, b2, lower)
        lower = dot(a1, b2, lower)
        lower = dot(a2, b1, lower)
        leading = dot(a1, b1, tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32))
        acc = tl.fma(leading, 1.0, acc)  # acc + leading, which the compiler would leave to the tensor cores
    acc += lower

    # With an infinity, inf - inf or inf * 0 among the lower products may have made a NaN. The leading ones know better.
    if tl.max((acc != acc).to(tl.int32)) > 0:
        leading = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        for k in range(0, K, BLOCK_K):
            leading = dot(a_desc.load([off_m, k]), b_desc.load([off_n, k]), leading)
        acc = tl.where(acc != acc, leading, acc)

    offs_m = off_m + tl.arange(0, BLOCK_M)
    offs_n = off_n + tl.arange(0, BLOCK_N)
    exponent = tl.load(a_exponents_ptr + offs_m, mask=offs_m < M, other=0)[:, None]
    exponent += tl.load(b_exponents_ptr + offs_n, mask=offs_n < N, other=0)[None, :]
    half = exponent >> 1
    acc *= power_of_two(tl.maximum(half, -126))
    acc *= power_of_two(tl.maximum(exponent - half, -126))
    c_ptrs = c_ptr + offs_m[:, None].to(tl.int64) * N + offs_n[None, :]
    tl.store(c_ptrs, acc, mask=(offs_m[:, None] < M) & (offs_n[None, :] < N))


def _set_blocks(args: dict[str, Any]) -> None:
    """Before each launch: the descriptors' blocks are those of the configuration."""
    args["a_desc"].block_shape = [args["BLOCK_M"], args["BLOCK_K"]]
    args["b_desc"].block_shape = [args["BLOCK_N"], args["BLOCK_K"]]


def _config(BLOCK_M: int, BLOCK_N: int, BLOCK_K: int, num_warps: int, num_stages: int) -> triton.Config:
    tile = {"BLOCK_M": BLOCK_M, "BLOCK_N": BLOCK_N, "BLOCK_K": BLOCK_K}
    return triton.Config(tile, num_warps=num_warps, num_stages=num_stages, pre_hook=_set_blocks)


# Three accumulators leave room for 64 elements of C a thread.
CONFIGS = [
    _config(128, 128, 32, 8, 4),
    _config(128, 128, 64, 8, 2),
    _config(64, 128, 32, 4, 3),
    _config(128, 64, 32, 4, 3),
    _config(64, 64, 32, 4, 4),
]


def _candidates(configs: list[triton.Config], args: dict[str, Any], **constants: Any) -> list[triton.Config]:
    """The configurations, less those with too few tiles for the multiprocessors."""
    M, N = args["M"], args["N"]
    tiles = {c: triton.cdiv(M, c.kwargs["BLOCK_M"]) * triton.cdiv(N, c.kwargs["BLOCK_N"]) for c in configs}
    multiprocessors = torch.cuda.get_device_properties(args["a_desc"].base.device).multi_processor_count
    enough = min(max(tiles.values()), multiprocessors // 3)
    return [config for config in configs if tiles[config] >= enough]


def tuning_space(args: dict[str, Any], **constants: Any) -> list[triton.Config]:
    """What a search that may take minutes tries beyond the candidates: up to 64 elements of C a thread, and as many
    stages as fit for one program on a multiprocessor, or for two."""
    shared = torch.cuda.get_device_properties(args["a_desc"].base.device).shared_memory_per_multiprocessor
    found = []
    for BLOCK_M, BLOCK_N, BLOCK_K in itertools.product((64, 128, 256), (64, 128, 256), (16, 32, 64)):
        warps = max(4, BLOCK_M * BLOCK_N // (32 * 64))
        stage = 6 * (BLOCK_M + BLOCK_N) * BLOCK_K
        stages = {min(6, (shared // programs - 1024) // stage) for programs in (1, 2)}
        found += [_config(BLOCK_M, BLOCK_N, BLOCK_K, warps, n) for n in sorted(stages) if n >= 2 and warps <= 16]
    return _candidates(found, args, **constants)


if INTERPRET:  # no device to time configurations on: one tile that numpy multiplies fast
    TILE: dict[str, int] = {"BLOCK_M": 256, "BLOCK_N": 256, "BLOCK_K": 256}
    SPLIT_TILE: dict[str, int] = {"BLOCK_R": 256, "BLOCK_K": 256}
else:
    TILE = {}
    SPLIT_TILE = {"BLOCK_R": 16, "BLOCK_K": 256}
    matmul_kernel = triton.autotune(
        configs=CONFIGS, key=["M", "N", "K", "ALL_PRODUCTS"], prune_configs_by={"early_config_prune": _candidates}
    )(matmul_kernel)


def _split(x: Tensor) -> tuple[TensorDescriptor, Tensor]:
    """The planes of x (R, K), one below the other as (3 R, K), and the exponents of its rows."""
    R, K = x.shape
    pitch = triton.cdiv(K, 8) * 8  # TMA reads rows that start at multiples of 16 bytes
    planes = torch.empty((3 * R, pitch), dtype=torch.bfloat16, device=x.device)
    exponents = torch.empty((R,), dtype=torch.int32, device=x.device)
    split_kernel[(triton.cdiv(R, SPLIT_TILE["BLOCK_R"]),)](
        x, planes, exponents, R, K, x.stride(0), x.stride(1), pitch, **SPLIT_TILE
    )
    return TensorDescriptor(planes, [3 * R, K], [pitch, 1], [1, 8]), exponents


def matmul(a: Float[Tensor, "M K"], b: Float[Tensor, "K N"], *, precision: str = "ieee") -> Float[Tensor, "M N"]:
    """C = A @ B.

    Shapes: a (M, K), b (K, N), any strides, any sizes, K = 0 included; the output is contiguous.
    Dtypes: float32; the tensor cores multiply bfloat16, exactly, and add in float32.
    Precision: "ieee". Products err by less than 2^-24, and there are fewer roundings than with float32 products and
    sums. An element below 2^-110 of the largest in its row of a or column of b loses low bits, below 2^-133 all.
    Partial sums do not overflow: C is infinite only where the result is beyond float32, or an input infinite.
    Memory: 6 bytes for each element of a and b.
    Tail: TMA reads zeros beyond K; rows and columns beyond M and N are computed and not stored.
    Errors: ValueError for other shapes, dtypes, devices or precisions; NotImplementedError for 16-bit inputs and tf32,
    which are exact in one product, and for a GPU whose tensor cores have no bfloat16.
    Source: bf16x3 of Henry, Tang and Heinecke, "Leveraging the bfloat16 artificial intelligence datatype for
    higher-precision computations", ARITH 2019; additions outside the tensor cores after Ootomo and Yokota, "Recovering
    single precision accuracy from tensor cores", IJHPCA 36, 2022.
    """
    if a.ndim != 2:
        raise ValueError(f"matmul: a must be (M, K); got {tuple(a.shape)}")
    M, K = a.shape
    if b.ndim != 2 or b.shape[0] != K:
        raise ValueError(f"matmul: a is (M, K)={(M, K)}, so b must be ({K}, N); got {tuple(b.shape)}")
    N = b.shape[1]
    if a.dtype not in (torch.float32, torch.float16, torch.bfloat16):
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
    if a.dtype != torch.float32 or precision != "ieee":
        raise NotImplementedError(f'matmul: splits float32 with precision="ieee" only; got {a.dtype}, "{precision}"')
    if a.is_cuda and torch.cuda.get_device_capability(a.device)[0] < 8:
        raise NotImplementedError("matmul: bfloat16 tensor cores need compute capability 8.0")
    if a.is_cuda and a.device.index != torch.cuda.current_device():
        with torch.cuda.device(a.device):
            return matmul(a, b, precision=precision)

    if K == 0:
        return torch.zeros((M, N), dtype=a.dtype, device=a.device)
    out = torch.empty((M, N), dtype=a.dtype, device=a.device)
    if M > 0 and N > 0:
        (a_desc, a_exponents), (b_desc, b_exponents) = _split(a), _split(b.t())
        if INTERPRET:
            _set_blocks({"a_desc": a_desc, "b_desc": b_desc, **TILE})
        matmul_kernel[lambda tile: (triton.cdiv(M, tile["BLOCK_M"]) * triton.cdiv(N, tile["BLOCK_N"]),)](
            a_desc, b_desc, out, a_exponents, b_exponents, M, N, K, ALL_PRODUCTS=K <= 16, GROUP_M=GROUP_M, **TILE
        )
    return out
