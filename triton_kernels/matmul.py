"""Matrix multiplication in Triton: tiles in grouped order, and a pipelined loop over K."""

import itertools
from typing import Any

import torch
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor

DETERMINISTIC = True
DTYPES_BEYOND = ("float8_e4m3fn",)
INTERPRET = tl.constexpr(triton.knobs.runtime.interpret)  # TRITON_INTERPRET=1 when this module was imported
DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn)
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
# Where sums of 128 terms are added to others there are two accumulators of 64 numbers a thread, or of 128 and 64.
FLOAT8_CONFIGS = {
    "promoted": [
        _config(128, 256, 128, 8, 3),
        _config(128, 256, 128, 8, 4),
        _config(128, 128, 128, 8, 3),
        _config(128, 128, 128, 8, 4),
        _config(64, 256, 128, 8, 3),
        _config(64, 256, 128, 8, 4),
        _config(64, 128, 128, 4, 4),
        _config(128, 64, 128, 4, 4),
        _config(64, 64, 128, 4, 5),
        _config(64, 32, 128, 4, 5),
        _config(64, 16, 256, 4, 4),
        _config(16, 128, 128, 4, 4),
        _config(16, 32, 256, 4, 4),
    ],
    "fast": [
        _config(128, 256, 128, 8, 3),
        _config(128, 256, 128, 8, 4),
        _config(256, 128, 128, 8, 3),
        _config(256, 128, 128, 8, 4),
        _config(128, 128, 128, 4, 4),
        _config(128, 128, 128, 8, 4),
        _config(64, 128, 128, 4, 4),
        _config(128, 64, 128, 4, 4),
        _config(64, 64, 128, 4, 5),
        _config(64, 32, 128, 4, 5),
        _config(64, 16, 256, 4, 4),
        _config(16, 128, 128, 4, 4),
        _config(16, 32, 256, 4, 4),
    ],
}
TF32_CONFIGS = [
    _config(128, 256, 32, 8, 3),
    _config(128, 256, 32, 8, 4),
    _config(128, 128, 32, 4, 3),
    _config(128, 128, 32, 8, 4),
    _config(64, 128, 32, 4, 4),
    _config(64, 128, 64, 4, 4),
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
    """The configurations for the unit that multiplies, as far as their tiles suit C."""
    if args["a_ptr"].dtype == torch.float8_e4m3fn:
        return _suiting(FLOAT8_CONFIGS[constants["PRECISION"]], args)
    if args["a_ptr"].dtype != torch.float32:
        return _suiting(HALF_CONFIGS, args)
    return _suiting(TF32_CONFIGS if constants["PRECISION"] == "tf32" else IEEE_CONFIGS, args)


def tuning_space(args: dict[str, Any], **constants: Any) -> list[triton.Config]:
    """What a search that may take minutes tries beyond the candidates.

    For tensor cores: steps of 128 and 256 bytes of K, longer ones for small tiles, 64 to 128 accumulators a thread
    (fewer if 4 warps have no more), and as many stages as fit for one, or for two programs, on a multiprocessor.
    Without tensor cores: short steps, 32 to 64 accumulators.
    """
    a = args["a_ptr"]
    ieee = a.dtype == torch.float32 and constants["PRECISION"] == "ieee"
    shared = torch.cuda.get_device_properties(a.device).shared_memory_per_multiprocessor
    most = 64 if ieee else 128  # accumulators
    found = []
    sides = (16, 32, 64, 128, 256)
    for BLOCK_M, BLOCK_N, warps, step in itertools.product(sides, sides, (4, 8), (64, 128, 256, 512)):
        accumulators = BLOCK_M * BLOCK_N // (32 * warps)
        BLOCK_K = step // a.element_size()
        if accumulators > most or (accumulators < most // 2 and warps > 4) or not 16 <= BLOCK_K <= 256:
            continue
        if ieee:
            found += [_config(BLOCK_M, BLOCK_N, BLOCK_K, warps, n) for n in (2, 3, 4) if BLOCK_K * n <= 64]
        elif step >= 128 and (step <= 256 or BLOCK_M * BLOCK_N <= 4096):
            stage = (BLOCK_M + BLOCK_N) * step
            stages = {min(8, (shared // programs - 1024) // stage) for programs in (1, 2)}
            found += [_config(BLOCK_M, BLOCK_N, BLOCK_K, warps, n) for n in sorted(stages) if n >= 2]
    return _suiting(found, args)


def _suiting(configs: list[triton.Config], args: dict[str, Any]) -> list[triton.Config]:
    """The configurations less those whose tiles overhang C too far or are too few."""
    a, M, N = args["a_ptr"], args["M"], args["N"]
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
def from_registers(x):
    """x, after an instruction that changes nothing: what an instruction has made wgmma takes from registers, not from
    shared memory, and on its way to them it can be transposed.
    """
    if INTERPRET:
        return x
    else:
        return tl.inline_asm_elementwise("mov.b32 $0, $1;", "=r,r", [x], tl.float32, is_pure=True, pack=1)


@triton.jit
def computed_once(offs, ALIGN: tl.constexpr, ROWS: tl.constexpr):
    """offs, of which ALIGN neighbours lie side by side, after an instruction that changes nothing: what the compiler
    cannot see through it does not take apart and add up again in the loop, for each of the copies on whose addresses
    the next product waits.
    """
    if INTERPRET or ALIGN == 1:
        return offs
    else:
        offs = tl.inline_asm_elementwise("mov.b64 $0, $1;", "=l,l", [offs], tl.int64, is_pure=True, pack=1)
        if ROWS:
            return tl.max_contiguous(tl.multiple_of(offs, (1, ALIGN)), (1, ALIGN))
        else:
            return tl.max_contiguous(tl.multiple_of(offs, (ALIGN, 1)), (ALIGN, 1))


@triton.jit
def transpose_kernel(x_ptr, y_ptr, R, C, stride_r, stride_c, stride_y, BLOCK: tl.constexpr):
    """y = x^T: x [R, C], y [C, R] with rows stride_y apart. One program, one block."""
    tiles_c = tl.cdiv(C, BLOCK)
    r = tl.program_id(0) // tiles_c * BLOCK + tl.arange(0, BLOCK)
    c = tl.program_id(0) % tiles_c * BLOCK + tl.arange(0, BLOCK)
    inside = (r[:, None] < R) & (c[None, :] < C)
    x = tl.load(x_ptr + r[:, None].to(tl.int64) * stride_r + c[None, :].to(tl.int64) * stride_c, mask=inside)
    tl.store(y_ptr + c[None, :].to(tl.int64) * stride_y + r[:, None], x, mask=inside)


@triton.jit
def multiple(x, ALIGN: tl.constexpr):
    """x, a multiple of ALIGN, so that the compiler sees it (on its own it looks at multiples of 16 only)."""
    return x // ALIGN * ALIGN


@triton.jit
def quotient(x, y):
    """x // y, if it is 0 to 2^21: the first loads would wait more than a hundred cycles for an integer division."""
    q = (x / y).to(tl.int32)  # rounded in float32, so it may be one off
    rest = x - q * y
    return q + (rest >= y).to(tl.int32) - (rest < 0).to(tl.int32)


@triton.jit
def multiply_add(a, b, acc, PRECISION: tl.constexpr):
    """acc + a b."""
    if INTERPRET:  # its dot is wrong for bfloat16
        a = a.to(tl.float32)
        b = b.to(tl.float32)
    if PRECISION == "promoted":
        BLOCK_K: tl.constexpr = a.shape[1]
        acc = tl.dot(a, b, acc, max_num_imprecise_acc=BLOCK_K if BLOCK_K < 128 else 128)
    elif PRECISION == "fast":
        acc = tl.dot(a, b, acc)
    else:
        acc = tl.dot(a, b, acc, input_precision=PRECISION)
    return acc


@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, scale_a_ptr, scale_b_ptr,
    M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    PRECISION: tl.constexpr, MASKED: tl.constexpr, GROUP_M: tl.constexpr,
    ALIGN: tl.constexpr, A_ROWS: tl.constexpr, B_ROWS: tl.constexpr, C_ROWS: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """One program computes one tile of C, [BLOCK_M, BLOCK_N], in float32 registers.

    Each step of the loop multiplies [BLOCK_M, BLOCK_K] by [BLOCK_K, BLOCK_N]; the compiler keeps num_stages of them in
    shared memory, copying the next ones asynchronously while the tensor cores work on this one. ALIGN is the number of
    elements in 16 bytes if every row of A, B and C starts and ends at a multiple of it; else 1, and the copies are of
    single elements. A_ROWS says that rows of A are rows, with stride_ak = 1, not columns, with stride_am = 1.

    Tensor cores keep 14 significant bits of a sum of float8 products. If PRECISION is "promoted", each 128 terms are
    summed from 0 and added in float32. That takes twice the registers, which a large tile has for a half of its columns
    at a time only: PAIR.
    """
    PAIR: tl.constexpr = PRECISION == "promoted" and BLOCK_M * BLOCK_N > 128 * 128
    WIDTH: tl.constexpr = BLOCK_N // 2 if PAIR else BLOCK_N
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

    if not B_ROWS:  # if the loop might not run, acc is zeroed on two paths to it, and ptxas lets no two wgmmas overlap
        tl.assume(K > 0)
    pid = tl.program_id(0)
    tiles_m = tl.cdiv(M, BLOCK_M)
    tiles_n = tl.cdiv(N, BLOCK_N)
    band = quotient(pid, GROUP_M * tiles_n)
    band_rows = min(tiles_m - band * GROUP_M, GROUP_M)
    within = pid - band * GROUP_M * tiles_n
    column = quotient(within, band_rows)
    offs_m = (band * GROUP_M + within - column * band_rows) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = column * BLOCK_N + tl.arange(0, WIDTH)
    offs_k = tl.arange(0, BLOCK_K)

    a_offs = offs_m[:, None].to(tl.int64) * stride_am + offs_k[None, :].to(tl.int64) * stride_ak
    b_offs = offs_k[:, None].to(tl.int64) * stride_bk + offs_n[None, :].to(tl.int64) * stride_bn
    a_ptrs = a_ptr + computed_once(a_offs, ALIGN, A_ROWS)
    b_ptrs = b_ptr + computed_once(b_offs, ALIGN, B_ROWS)
    a_step = tl.full((), BLOCK_K, tl.int64) * stride_ak
    b_step = tl.full((), BLOCK_K, tl.int64) * stride_bk
    b_right = tl.full((), WIDTH, tl.int64) * stride_bn
    acc = tl.zeros((BLOCK_M, WIDTH), dtype=tl.float32)
    right = tl.zeros((BLOCK_M, WIDTH), dtype=tl.float32) if PAIR else acc
    for k in range(0, K, BLOCK_K):
        if MASKED:
            a = tl.load(a_ptrs, mask=(offs_m[:, None] < M) & (offs_k[None, :] < K - k), other=0.0)
            b = tl.load(b_ptrs, mask=(offs_k[:, None] < K - k) & (offs_n[None, :] < N), other=0.0)
        else:
            a = tl.load(a_ptrs)
            b = tl.load(b_ptrs)
        if PRECISION == "tf32" and not A_ROWS:
            a = from_registers(a)
        acc = multiply_add(a, b, acc, PRECISION)
        if PAIR:
            if MASKED:
                b = tl.load(b_ptrs + b_right, mask=(offs_k[:, None] < K - k) & (offs_n[None, :] < N - WIDTH), other=0.0)
            else:
                b = tl.load(b_ptrs + b_right)
            right = multiply_add(a, b, right, PRECISION)
        a_ptrs += a_step
        b_ptrs += b_step

    if scale_a_ptr is not None:
        scale = tl.load(scale_a_ptr) * tl.load(scale_b_ptr)
        acc *= scale
        if PAIR:
            right *= scale
    c_ptrs = c_ptr + offs_m[:, None].to(tl.int64) * stride_cm + offs_n[None, :].to(tl.int64) * stride_cn
    if MASKED:
        tl.store(c_ptrs, acc, mask=(offs_m[:, None] < M) & (offs_n[None, :] < N))
    else:
        tl.store(c_ptrs, acc)
    if PAIR:
        c_ptrs += tl.full((), WIDTH, tl.int64) * stride_cn
        if MASKED:
            tl.store(c_ptrs, right, mask=(offs_m[:, None] < M) & (offs_n[None, :] < N - WIDTH))
        else:
            tl.store(c_ptrs, right)


if INTERPRET:  # no device to time configurations on: one tile that numpy multiplies fast
    TILE: dict[str, int] = {"BLOCK_M": 256, "BLOCK_N": 256, "BLOCK_K": 256}
else:  # timed once for each key, and kept in Triton's cache directory
    TILE = {}
    matmul_kernel = triton.autotune(
        configs=HALF_CONFIGS + TF32_CONFIGS + IEEE_CONFIGS + FLOAT8_CONFIGS["promoted"] + FLOAT8_CONFIGS["fast"],
        key=["M", "N", "K", "stride_am", "stride_ak", "stride_bk", "stride_bn", "PRECISION"],
        prune_configs_by={"early_config_prune": _candidates},
        cache_results=True,
    )(matmul_kernel)


def _alignment(*matrices: Tensor) -> int:
    """The number of A's elements in 16 bytes if every row starts and ends at a multiple of it, and 1 otherwise."""
    vector = 16 // matrices[0].element_size()
    for matrix in matrices:
        along = 1 if matrix.stride(1) == 1 else 0
        if matrix.stride(along) != 1 or matrix.shape[along] % vector != 0 or matrix.stride(1 - along) % vector != 0:
            return 1
    return vector


def _by_columns(x: Tensor) -> Tensor:
    """x, float32, with contiguous columns that start at multiples of 16 bytes."""
    R, C = x.shape
    y = torch.empty((C, triton.cdiv(R, 4) * 4), dtype=x.dtype, device=x.device)[:, :R]
    blocks = triton.cdiv(R, 64) * triton.cdiv(C, 64)
    transpose_kernel[(blocks,)](x, y, R, C, *x.stride(), y.stride(0), BLOCK=64, num_warps=4)
    return y.t()


def matmul(
    a: Float[Tensor, "M K"],
    b: Float[Tensor, "K N"],
    scale_a: Float[Tensor, ""] | None = None,
    scale_b: Float[Tensor, ""] | None = None,
    *,
    precision: str = "ieee",
) -> Float[Tensor, "M N"]:
    """C = A @ B, of float8 times scale_a scale_b.

    Shapes: a (M, K), b (K, N), any strides, K = 0 included; the output is contiguous.
    Dtypes: float32, float16, bfloat16, the same for both; sums in float32, rounded once at the end. float8_e4m3fn, with
    a float32 scale of shape () for each of the two, gives bfloat16.
    Precision: "ieee" multiplies exactly what it is given (float32 without tensor cores); with "tf32", for float32 only,
    the tensor cores keep 11 significant bits of each factor, truncating. For float8, whose products Hopper's tensor
    cores sum with 14 bits, "promoted" adds sums of 128 in float32, "fast" none.
    Tail: unless every tile of every configuration fits, loads and stores are masked; offsets are int64.
    Errors: ValueError for other shapes, dtypes, scales, devices or precisions; NotImplementedError for M above 2^28
    or N above 2^26.
    Source: the tile order and pipelined loop of Triton's matrix multiplication tutorial.
    """
    if a.ndim != 2:
        raise ValueError(f"matmul: a must be (M, K); got {tuple(a.shape)}")
    M, K = a.shape
    if b.ndim != 2 or b.shape[0] != K:
        raise ValueError(f"matmul: a is (M, K)={(M, K)}, so b must be ({K}, N); got {tuple(b.shape)}")
    N = b.shape[1]
    if a.dtype not in DTYPES:
        raise ValueError(f"matmul: a must be float32, float16, bfloat16 or float8_e4m3fn; got {a.dtype}")
    if b.dtype != a.dtype:
        raise ValueError(f"matmul: a is {a.dtype}, so b must be too; got {b.dtype}")
    float8 = a.dtype == torch.float8_e4m3fn
    wide = ("ieee", "tf32") if a.dtype == torch.float32 else ("ieee",)
    if precision not in (("promoted", "fast") if float8 else wide):
        allowed = '"promoted" or "fast" for float8' if float8 else '"ieee", or "tf32" for float32'
        raise ValueError(f'matmul: precision must be {allowed}; got "{precision}" for {a.dtype}')
    if b.device != a.device:
        raise ValueError(f"matmul: a is on {a.device}, so b must be too; got {b.device}")
    for name, scale in (("scale_a", scale_a), ("scale_b", scale_b)):
        found = None if scale is None else (scale.dtype, tuple(scale.shape), scale.device)
        expected = (torch.float32, (), a.device) if float8 else None
        if found != expected:
            raise ValueError(f"matmul: a is {a.dtype}, so {name} must be {expected}; got {found}")
    if not (a.is_cuda or INTERPRET):
        raise ValueError(
            f"matmul: a is on {a.device}; pass CUDA tensors, or set TRITON_INTERPRET=1 before importing this module"
        )
    if M > 2**28 or N > 2**26:  # as far as `quotient` goes with the smallest tiles
        raise NotImplementedError(f"matmul: M must be at most 2^28, N at most 2^26; got {M} and {N}")
    if a.is_cuda and a.device.index != torch.cuda.current_device():
        with torch.cuda.device(a.device):
            return matmul(a, b, scale_a, scale_b, precision=precision)

    out_dtype = torch.bfloat16 if float8 else a.dtype
    if K == 0:
        return torch.zeros((M, N), dtype=out_dtype, device=a.device)
    out = torch.empty((M, N), dtype=OUT_DTYPE or out_dtype, device=a.device)
    if M > 0 and N > 0:
        c = out
        tf32 = precision == "tf32"
        if tf32 and a.stride(1) != 1 and b.stride(0) != 1:
            b = _by_columns(b)
        swapped = (a.stride(1) == 1 and b.stride(0) != 1) if tf32 else a.stride(0) == b.stride(0) == 1
        if swapped:
            # C^T = B^T A^T. Hopper's tensor cores read 32-bit numbers from shared memory only with K contiguous; the
            # left operand may come from registers. And two operands by columns are better multiplied by rows.
            a, b, c, M, N = b.t(), a.t(), out.t(), N, M
        masked = M % 256 != 0 or N % 256 != 0 or K % 256 != 0
        matmul_kernel[lambda tile: (triton.cdiv(M, tile["BLOCK_M"]) * triton.cdiv(N, tile["BLOCK_N"]),)](
            a, b, c, scale_a, scale_b, M, N, K, *a.stride(), *b.stride(), *c.stride(),
            PRECISION=precision, MASKED=masked, GROUP_M=GROUP_M, ALIGN=_alignment(a, b, c),
            A_ROWS=a.stride(1) == 1, B_ROWS=b.stride(1) == 1, C_ROWS=c.stride(1) == 1, **TILE,
        )  # fmt: skip
    return out.to(out_dtype) if INTERPRET else out
