"""Matrix multiplication in Triton: grouped tiles, and a software-pipelined loop over K."""

import torch
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor

from triton_kernels._common.tiles import grouped_tile
from triton_kernels._runtime.arguments import check_length, check_matmul
from triton_kernels._runtime.autotuner import autotune
from triton_kernels._runtime.configs import multiprocessors
from triton_kernels._runtime.interpreter import INTERPRET, dot_operand, empty_output, finished_output
from triton_kernels._runtime.launch import column_major, device_of, kept, launch
from triton_kernels.matmul._configs import CONFIGS, short_list, tuning_space  # noqa: F401
from triton_kernels.matmul._few import Few, multiply_few
from triton_kernels.matmul._pad import VECTOR, both_zero_padded, zero_padded
from triton_kernels.matmul._parts import STEP, add_parts
from triton_kernels.matmul._plan import Problem, best_of, count

DETERMINISTIC = True
DTYPES_BEYOND = ("float8_e4m3fn",)
STRIDES = [f"stride_{matrix}" for matrix in ("am", "ak", "bk", "bn", "cm", "cn")]
GROUP_M = 8  # tile rows per group of the tile scheduler


@triton.jit
def in_registers(x):
    """x after a no-op instruction, so that wgmma takes it from registers, and the compiler can transpose it."""
    if INTERPRET:
        return x
    else:
        return tl.inline_asm_elementwise("mov.b32 $0, $1;", "=r,r", [x], tl.float32, is_pure=True, pack=1)


@triton.jit
def opaque_offsets(offs, ALIGN: tl.constexpr, ROWS: tl.constexpr):
    """offs, runs of ALIGN consecutive numbers along rows or columns, after a no-op instruction.

    The compiler cannot look through the instruction. Without it, it recomputes the offsets of every copy within the
    loop, and the next product waits for those addresses.
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
def known_multiple(x, ALIGN: tl.constexpr):
    """x, a multiple of ALIGN, in a form from which the compiler infers it (by itself it tests for 16 only)."""
    return x // ALIGN * ALIGN


@triton.jit
def multiply_add(a, b, acc, PRECISION: tl.constexpr):
    """acc + a b, accumulated as PRECISION says."""
    a = dot_operand(a)
    b = dot_operand(b)
    if PRECISION == "promoted":
        BLOCK_K: tl.constexpr = a.shape[1]
        acc = tl.dot(a, b, acc, max_num_imprecise_acc=BLOCK_K if BLOCK_K < 128 else 128)
    elif PRECISION == "fast":
        acc = tl.dot(a, b, acc)
    else:
        acc = tl.dot(a, b, acc, input_precision=PRECISION)
    return acc


@triton.jit(do_not_specialize=["M", "N", "K", "K_part"], do_not_specialize_on_alignment=STRIDES)
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, scale_a_ptr, scale_b_ptr,
    M, N, K, K_part, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    SPLIT: tl.constexpr, PRECISION: tl.constexpr, MASKED: tl.constexpr, GROUP_M: tl.constexpr,
    ALIGN_A: tl.constexpr, ALIGN_B: tl.constexpr, ALIGN_C: tl.constexpr,
    PADDED_A: tl.constexpr, PADDED_B: tl.constexpr, A_ROWS: tl.constexpr, B_ROWS: tl.constexpr, C_ROWS: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """One program computes one tile of C, [BLOCK_M, BLOCK_N], in float32 registers.

    Each step over K multiplies [BLOCK_M, BLOCK_K] by [BLOCK_K, BLOCK_N]. The compiler pipelines num_stages steps
    through shared memory: asynchronous copies of the next steps overlap with the tensor cores.
    ALIGN_A: elements in 16 bytes if the rows of A start and end at multiples of 16 bytes; otherwise 1, and copies are
    of single elements; ALIGN_B and ALIGN_C likewise. A_ROWS: A is row-major (stride_ak = 1), otherwise column-major
    (stride_am = 1); B_ROWS and C_ROWS likewise.

    PADDED_A: memory of A ends at the next multiples of ALIGN_A beyond M and K, with zeros; PADDED_B likewise.

    With SPLIT, C has a matrix for each part of K, and program p of the second axis adds the products of K_part columns
    of A from p K_part on, a multiple of all BLOCK_K.

    Tensor cores keep 14 significant bits of a sum of float8 products. PRECISION "promoted" sums every 128 terms from 0
    and adds them in float32. That takes twice the registers; a large tile has them for half of its columns at a time:
    PAIR.
    """
    PAIR: tl.constexpr = PRECISION == "promoted" and BLOCK_M * BLOCK_N > 128 * 128
    WIDTH: tl.constexpr = BLOCK_N // 2 if PAIR else BLOCK_N
    M_a, K_a = tl.cdiv(M, ALIGN_A) * ALIGN_A if PADDED_A else M, tl.cdiv(K, ALIGN_A) * ALIGN_A if PADDED_A else K
    N_b, K_b = tl.cdiv(N, ALIGN_B) * ALIGN_B if PADDED_B else N, tl.cdiv(K, ALIGN_B) * ALIGN_B if PADDED_B else K
    M_c, N_c = M, N
    pid = tl.program_id(0)
    if SPLIT:
        K_part = known_multiple(K_part, 256)
        begin = tl.program_id(1) * K_part
        K_a, K_b = min(K_a - begin, K_part), min(K_b - begin, K_part)
        a_ptr += tl.full((), begin, tl.int64) * stride_ak
        b_ptr += tl.full((), begin, tl.int64) * stride_bk
        c_ptr += tl.full((), tl.program_id(1), tl.int64) * M * N
    if ALIGN_A > 1:
        if A_ROWS:
            stride_am, K_a = known_multiple(stride_am, ALIGN_A), known_multiple(K_a, ALIGN_A)
        else:
            stride_ak, M_a = known_multiple(stride_ak, ALIGN_A), known_multiple(M_a, ALIGN_A)
    if ALIGN_B > 1:
        if B_ROWS:
            stride_bk, N_b = known_multiple(stride_bk, ALIGN_B), known_multiple(N_b, ALIGN_B)
        else:
            stride_bn, K_b = known_multiple(stride_bn, ALIGN_B), known_multiple(K_b, ALIGN_B)
    if ALIGN_C > 1:
        if C_ROWS:
            stride_cm, N_c = known_multiple(stride_cm, ALIGN_C), known_multiple(N, ALIGN_C)
        else:
            stride_cn, M_c = known_multiple(stride_cn, ALIGN_C), known_multiple(M, ALIGN_C)
    K = K_a if A_ROWS else K_b
    if not B_ROWS:  # otherwise acc reaches the loop on two paths, and ptxas serializes the wgmmas
        tl.assume(K > 0)
    pid_m, pid_n = grouped_tile(pid, tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N), GROUP_M)
    offs_m = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = pid_n * BLOCK_N + tl.arange(0, WIDTH)
    offs_k = tl.arange(0, BLOCK_K)

    a_offs = offs_m[:, None].to(tl.int64) * stride_am + offs_k[None, :].to(tl.int64) * stride_ak
    b_offs = offs_k[:, None].to(tl.int64) * stride_bk + offs_n[None, :].to(tl.int64) * stride_bn
    a_ptrs = a_ptr + opaque_offsets(a_offs, ALIGN_A, A_ROWS)
    b_ptrs = b_ptr + opaque_offsets(b_offs, ALIGN_B, B_ROWS)
    a_step = tl.full((), BLOCK_K, tl.int64) * stride_ak
    b_step = tl.full((), BLOCK_K, tl.int64) * stride_bk
    b_right = tl.full((), WIDTH, tl.int64) * stride_bn
    acc = tl.zeros((BLOCK_M, WIDTH), dtype=tl.float32)
    right = tl.zeros((BLOCK_M, WIDTH), dtype=tl.float32) if PAIR else acc
    for k in range(0, K, BLOCK_K):
        if MASKED:
            a = tl.load(a_ptrs, mask=(offs_m[:, None] < M_a) & (offs_k[None, :] < K_a - k), other=0.0)
            b = tl.load(b_ptrs, mask=(offs_k[:, None] < K_b - k) & (offs_n[None, :] < N_b), other=0.0)
        else:
            a = tl.load(a_ptrs)
            b = tl.load(b_ptrs)
        if PRECISION == "tf32" and not A_ROWS:
            a = in_registers(a)
        acc = multiply_add(a, b, acc, PRECISION)
        if PAIR:
            if MASKED:
                inside = (offs_k[:, None] < K_b - k) & (offs_n[None, :] < N_b - WIDTH)
                b = tl.load(b_ptrs + b_right, mask=inside, other=0.0)
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
        tl.store(c_ptrs, acc, mask=(offs_m[:, None] < M_c) & (offs_n[None, :] < N_c))
    else:
        tl.store(c_ptrs, acc)
    if PAIR:
        c_ptrs += tl.full((), WIDTH, tl.int64) * stride_cn
        if MASKED:
            tl.store(c_ptrs, right, mask=(offs_m[:, None] < M_c) & (offs_n[None, :] < N_c - WIDTH))
        else:
            tl.store(c_ptrs, right)


if INTERPRET:  # without autotuning: one tile that numpy multiplies fast
    TILE: dict[str, int] = {"BLOCK_M": 256, "BLOCK_N": 256, "BLOCK_K": 256}
else:  # tuned, or timed once per key and kept in Triton's cache folder
    TILE = {}
    KEY = ["M", "N", "K", "stride_am", "stride_ak", "stride_bk", "stride_bn", "PRECISION"]
    matmul_kernel = autotune(CONFIGS, KEY, short_list)(matmul_kernel)


def alignment(*matrices: Tensor) -> int:
    """Elements in 16 bytes if every contiguous row or column starts and ends at a multiple of 16 bytes; otherwise 1."""
    vector = 16 // matrices[0].element_size()
    for matrix in matrices:
        along = 1 if matrix.stride(1) == 1 else 0
        if matrix.stride(along) != 1 or matrix.shape[along] % vector != 0 or matrix.stride(1 - along) % vector != 0:
            return 1
    return vector


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
    cores truncate each factor to 11 significant bits. For float8, whose products Hopper's tensor cores sum with 14
    bits: "promoted" adds sums of 128 products in float32, "fast" leaves all sums to the tensor cores.
    In 16 bits a model chooses among these plans (`_plan.py`):
    Parts: if the output has too few tiles for the device, programs divide K; their float32 sums take 4 M N bytes for
    each part and are added in a fixed order by a second kernel.
    Rows: operands whose rows are no multiples of 16 bytes may be copied first, with zeros at the ends.
    Few: at most 4 rows or columns may be multiplied without tensor cores (`_few.py`).
    Tail: unless every tile of every configuration fits, loads and stores are masked; offsets are int64.
    Errors: ValueError for other shapes, dtypes, scales, devices or precisions; NotImplementedError for M above 2^28,
    N above 2^26 or K above 2^30.
    Source: the tile order and pipelined loop of Triton's matrix multiplication tutorial.
    """
    check_matmul(a, b, scale_a, scale_b, precision=precision, float8=True)
    (M, K), N = a.shape, b.shape[1]
    if M > 2**28 or N > 2**26:  # the range of exact_quotient with the smallest tiles
        raise NotImplementedError(f"matmul: M must be at most 2^28, N at most 2^26; got {M} and {N}")
    check_length(a)
    dtype = torch.bfloat16 if a.dtype == torch.float8_e4m3fn else a.dtype
    if K == 0:
        return torch.zeros((M, N), dtype=dtype, device=a.device)
    out = empty_output((M, N), dtype, a.device)
    if M > 0 and N > 0:
        with device_of(a):
            _launch(a, b, out, scale_a, scale_b, precision)
    return finished_output(out, dtype)


def _launch(a: Tensor, b: Tensor, c: Tensor, scale_a: Tensor | None, scale_b: Tensor | None, precision: str) -> None:
    tf32 = precision == "tf32"
    if tf32 and a.stride(1) != 1 and b.stride(0) != 1:
        b = column_major(b)
    # wgmma reads 32-bit operands from shared memory only with K contiguous, but takes the left one from registers too:
    # tf32 then computes C^T = B^T A^T. Two column-major operands of other types are faster multiplied as row-major.
    if (a.stride(1) == 1 and b.stride(0) != 1) if tf32 else a.stride(0) == b.stride(0) == 1:
        a, b, c = b.t(), a.t(), c.t()
    (M, K), N = a.shape, b.shape[1]
    K_part, padded = K, False
    if a.is_cuda and a.element_size() == 2:
        plan, _ = best_of(problem_of(a, b, c))
        if isinstance(plan, Few):
            if N < M:
                a, b, c = b.t(), a.t(), c.t()
            multiply_few(plan, a, b, c)
            return
        K_part, padded = K if plan.parts == 1 else count(count(K, STEP), plan.parts) * STEP, plan.padded
    _launch_tiles(a, b, c, scale_a, scale_b, precision, K_part, padded)


def by_pointers_us(a: Tensor, b: Tensor, c: Tensor) -> float:
    """Predicted time of `launch_by_pointers`."""
    return best_of(problem_of(a, b, c))[1]


def launch_by_pointers(a: Tensor, b: Tensor, c: Tensor) -> None:
    """c = a b in 16 bits, for launchers of other kernels, on the current device."""
    _launch(a, b, c, None, None, "ieee")


def problem_of(a: Tensor, b: Tensor, c: Tensor) -> Problem:
    """What the choice of a plan depends on."""
    (M, K), N = a.shape, b.shape[1]
    strides = b.stride() if M <= N else a.stride()[::-1]  # along K, across C
    along = strides[1] != 1 if 1 in strides else None
    a_whole, b_whole, c_whole = (alignment(x) > 1 for x in (a, b, c))
    return Problem(M, N, K, a_whole, b_whole, c_whole, along, multiprocessors(a))


def _launch_tiles(
    a: Tensor,
    b: Tensor,
    c: Tensor,
    scale_a: Tensor | None,
    scale_b: Tensor | None,
    precision: str,
    K_part: int,
    padding: bool,
    tile: dict[str, int] = TILE,
) -> None:
    (M, K), N = a.shape, b.shape[1]
    masked = M % 256 != 0 or N % 256 != 0 or K % 256 != 0
    align_a, align_b, align_c = map(alignment, (a, b, c))
    padded_a, padded_b = padding and align_a == 1, padding and align_b == 1
    if padded_a and padded_b:
        a, b = both_zero_padded(a, b)
    elif padded_a:
        a = zero_padded(a)
    elif padded_b:
        b = zero_padded(b)
    if padding:
        align_a = align_b = VECTOR
    parts = triton.cdiv(K, K_part)
    sums = c if parts == 1 else torch.empty((parts, c.numel()), dtype=torch.float32, device=a.device)
    launch(
        matmul_kernel, lambda tile: (triton.cdiv(M, tile["BLOCK_M"]) * triton.cdiv(N, tile["BLOCK_N"]), parts),
        a, b, sums, scale_a, scale_b, M, N, K, K_part, *a.stride(), *b.stride(), *c.stride(),
        SPLIT=parts > 1, PRECISION=precision, MASKED=masked, GROUP_M=GROUP_M,
        ALIGN_A=align_a, ALIGN_B=align_b, ALIGN_C=align_c, PADDED_A=padded_a, PADDED_B=padded_b,
        A_ROWS=a.stride(1) == 1, B_ROWS=b.stride(1) == 1, C_ROWS=c.stride(1) == 1, **tile,
    )  # fmt: skip
    if parts > 1:
        add_parts(sums, c)
