"""Matrix multiplication in Triton: float32 accuracy from bfloat16 tensor cores, each number split in three."""

import torch
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from triton_kernels._common.tiles import grouped_tile_any
from triton_kernels._runtime.autotuner import autotune
from triton_kernels._runtime.contract import check_matmul
from triton_kernels._runtime.interpreter import INTERPRET, dot_operand
from triton_kernels._runtime.launch import device_of, kept, launch
from triton_kernels.matmul._configs_split import CONFIGS, set_blocks, short_list, tuning_space  # noqa: F401

ARITHMETIC = "6 x bfloat16"
GROUP_M = 8  # tile rows per group of the tile scheduler
INFINITY = tl.constexpr(float("inf"))


@triton.jit
def power_of_two(exponent):
    """2^exponent as float32, for exponents of normal numbers."""
    return ((exponent + 127) << 23).to(tl.float32, bitcast=True)


@triton.jit
def round_to_bfloat16(x):
    """x rounded to bfloat16 (nearest, ties to even), as a float32. The interpreter's own conversion truncates."""
    bits = x.to(tl.int32, bitcast=True)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) & -0x10000).to(tl.float32, bitcast=True)


@triton.jit
def split_kernel(
    x_ptr, planes_ptr, exponents_ptr, R, K, stride_r, stride_k, pitch, BLOCK_R: tl.constexpr, BLOCK_K: tl.constexpr
):
    """One program scales BLOCK_R rows of X and splits every element into three bfloat16 numbers.

    Each row is scaled by the power of two that brings its largest element to [1, 2). The three numbers hold 3 x 8 bits,
    the 24 of a float32: their sum is exact. The scaling keeps the low parts of small numbers above the subnormal range,
    and sums of large ones below infinity. Infinities are not scaled; the low parts of infinities and NaN are zero.

    planes (3, R, pitch): the three numbers, leading bits first. exponents (R,): x = 2^exponent * scaled x.
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
    half = (-exponent) >> 1  # two factors: 2^149 is not a float32
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
    """acc + A B^T on tensor cores."""
    return tl.dot(dot_operand(a), dot_operand(b).T, acc)


@triton.jit(do_not_specialize=["M", "K"])
def matmul_kernel(
    a_desc, b_desc, c_ptr, a_exponents_ptr, b_exponents_ptr, M, N, K,
    ALL_PRODUCTS: tl.constexpr, GROUP_M: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """One program computes one tile of C, [BLOCK_M, BLOCK_N], from the planes a1, a2, a3 of A and b1, b2, b3 of B^T.

    a b = a1 b1 + (a1 b2 + a2 b1) + (a1 b3 + a2 b2 + a3 b1) + terms below 2^-24 of a b: six products of bfloat16, each
    exact in float32. Tensor cores truncate their sums towards zero; over a long K that error exceeds float32 rounding.
    So they sum only BLOCK_K leading products at a time, and acc adds these sums in float32 with rounding to nearest.
    The lower products are 2^-8 of the leading ones: their truncation is negligible.
    """
    pid_m, pid_n = grouped_tile_any(tl.program_id(0), tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N), GROUP_M)
    off_m, off_n = pid_m * BLOCK_M, pid_n * BLOCK_N

    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    lower = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        # A block beyond M reads rows of the next plane: they give rows of C that are not stored.
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
        acc = tl.fma(leading, 1.0, acc)  # an fma, because the compiler moves acc + leading into the tensor cores
    acc += lower

    # Infinite inputs can make NaN of the lower products (inf - inf, inf * 0): there only the leading products count.
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


if INTERPRET:  # without autotuning: one tile that numpy multiplies fast
    TILE: dict[str, int] = {"BLOCK_M": 256, "BLOCK_N": 256, "BLOCK_K": 256}
    SPLIT_TILE: dict[str, int] = {"BLOCK_R": 256, "BLOCK_K": 256}
else:
    TILE = {}
    SPLIT_TILE = {"BLOCK_R": 16, "BLOCK_K": 256}
    matmul_kernel = autotune(CONFIGS, ["M", "N", "K", "ALL_PRODUCTS"], short_list)(matmul_kernel)


@kept
def matmul(a: Float[Tensor, "M K"], b: Float[Tensor, "K N"], *, precision: str = "ieee") -> Float[Tensor, "M N"]:
    """C = A @ B.

    Shapes: a (M, K), b (K, N), any strides, M, N and K up to 2^29, K = 0 included; the output is contiguous.
    Dtypes: float32; the tensor cores multiply bfloat16, exactly, and add in float32.
    Precision: "ieee". The error of a product is below 2^-24, and there are fewer roundings than with float32 products
    and sums. An element below 2^-110 of the largest in its row of a or column of b loses low bits; below 2^-133, all.
    Partial sums do not overflow: C is infinite only where the result is beyond float32 or an input is infinite.
    Memory: 6 bytes for each element of a and b.
    Tail: TMA reads zeros beyond K; rows and columns beyond M and N are computed and not stored.
    Errors: ValueError for other shapes, dtypes, devices or precisions; NotImplementedError for 16-bit inputs and tf32,
    which need only one product, and for a GPU whose tensor cores have no bfloat16.
    Source: bf16x3 of Henry, Tang and Heinecke, "Leveraging the bfloat16 artificial intelligence datatype for
    higher-precision computations", ARITH 2019; additions outside the tensor cores after Ootomo and Yokota, "Recovering
    single precision accuracy from tensor cores", IJHPCA 36, 2022.
    """
    check_matmul(a, b, precision=precision)
    if a.dtype != torch.float32 or precision != "ieee":
        raise NotImplementedError(f'matmul: splits float32 with precision="ieee" only; got {a.dtype}, "{precision}"')
    if a.is_cuda and torch.cuda.get_device_capability(a.device)[0] < 8:
        raise NotImplementedError("matmul: bfloat16 tensor cores need compute capability 8.0")
    (M, K), N = a.shape, b.shape[1]
    if max(M, N, K) > 2**29:  # the planes have 3 M and 3 N rows, which TMA counts in 32 bits
        raise NotImplementedError(f"matmul: M, N and K must be at most 2^29; got {M}, {N} and {K}")
    if K == 0:
        return torch.zeros((M, N), dtype=a.dtype, device=a.device)
    out = torch.empty((M, N), dtype=a.dtype, device=a.device)
    if M > 0 and N > 0:
        with device_of(a):
            _launch(a, b, out)
    return out


def _launch(a: Tensor, b: Tensor, out: Tensor) -> None:
    (M, K), N = a.shape, b.shape[1]
    (a_desc, a_exponents), (b_desc, b_exponents) = split_rows(a), split_rows(b.t())
    if INTERPRET:
        set_blocks({"a_desc": a_desc, "b_desc": b_desc, **TILE})
    launch(
        matmul_kernel,
        lambda tile: (triton.cdiv(M, tile["BLOCK_M"]) * triton.cdiv(N, tile["BLOCK_N"]),),
        a_desc,
        b_desc,
        out,
        a_exponents,
        b_exponents,
        M,
        N,
        K,
        ALL_PRODUCTS=K <= 16,
        GROUP_M=GROUP_M,
        **TILE,
    )


def split_rows(x: Tensor) -> tuple[TensorDescriptor, Tensor]:
    """Runs `split_kernel` on x (R, K). Returns the planes, one below the other as (3 R, K), and the rows' exponents."""
    R, K = x.shape
    pitch = triton.cdiv(K, 8) * 8  # TMA reads rows that start at multiples of 16 bytes
    planes = torch.empty((3 * R, pitch), dtype=torch.bfloat16, device=x.device)
    exponents = torch.empty((R,), dtype=torch.int32, device=x.device)
    launch(
        split_kernel,
        (triton.cdiv(R, SPLIT_TILE["BLOCK_R"]),),
        x,
        planes,
        exponents,
        R,
        K,
        x.stride(0),
        x.stride(1),
        pitch,
        **SPLIT_TILE,
    )
    return TensorDescriptor(planes, [3 * R, K], [pitch, 1], [1, 8]), exponents
