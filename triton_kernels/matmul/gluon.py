"""Matrix multiplication in Gluon for Hopper: a producer warp loads by TMA, consumer warpgroups multiply by wgmma.

Adds to `persistent` warps with separate roles, so that loads never wait for products. The source states where operands
are stored and which barriers each warp waits for.
"""

import torch
import triton
from jaxtyping import Float
from torch import Tensor
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia import hopper
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from triton_kernels._common.tiles import left_columns
from triton_kernels._common.tma import TmaMatrix, tma_output
from triton_kernels._runtime.arguments import check_gpu, check_tensor_cores
from triton_kernels._runtime.autotuner import autotune
from triton_kernels._runtime.configs import device, multiprocessors
from triton_kernels._runtime.contract import check_matmul
from triton_kernels._runtime.launch import device_of, kept, launch, persistent_grid
from triton_kernels.matmul._add_parts import add_strided_parts
from triton_kernels.matmul._configs_gluon import (  # noqa: F401
    CONFIGS,
    ROWS,
    SWIZZLE,
    short_list,
    tile_count,
    tuning_space,
)
from triton_kernels.matmul._gluon_operands import as_transpose, copies, operands
from triton_kernels.matmul._gluon_tiles import (
    WGMMA_M,
    bias_and_sigmoid,
    consume_promoted,
    epilogue,
    load_stage,
    split_columns,
    tile_and_terms,
    work_items,
)
from triton_kernels.matmul._plan import Problem
from triton_kernels.matmul._plan_gluon import STEP, best_of

REQUIRES = "sm_90"
DTYPES_BEYOND = ("float8_e4m3fn",)
DTYPES = {
    torch.float32: gl.float32,
    torch.float16: gl.float16,
    torch.bfloat16: gl.bfloat16,
    torch.float8_e4m3fn: gl.float8e4nv,
}


@gluon.jit
def producer(
    a_desc, b_desc, right_desc, a_smem, b_smem, right_smem, full, empty, M, N, K, K_part,
    A_ROWS: gl.constexpr, B_ROWS: gl.constexpr, SPLIT: gl.constexpr, CONSUMERS: gl.constexpr,
    BLOCK_N: gl.constexpr, BLOCK_K: gl.constexpr, STAGES: gl.constexpr, GROUP_M: gl.constexpr, AHEAD: gl.constexpr,
):  # fmt: skip
    """The producer warp keeps STAGES steps of K in flight, across tiles.

    The kernel has already started the loads of the first AHEAD steps of the program's first tile.
    """
    BLOCK_M: gl.constexpr = WGMMA_M * CONSUMERS
    step = 0
    items = work_items(M, N, K, K_part, SPLIT, BLOCK_M, BLOCK_N)
    for work in range(gl.program_id(0), items, gl.num_programs(0)):
        off_m, off_n, begin, end, _ = tile_and_terms(work, M, N, K, K_part, SPLIT, BLOCK_M, BLOCK_N, GROUP_M)
        first = gl.program_id(0) == work
        for off_k in range(begin, end, BLOCK_K):
            if not (first & (off_k - begin < AHEAD * BLOCK_K)):
                stage = step % STAGES
                mbarrier.wait(empty.index(stage), (step // STAGES & 1) ^ 1)
                load_stage(
                    a_desc, b_desc, right_desc, a_smem, b_smem, right_smem, full, stage, off_m, off_n, off_k, True,
                    A_ROWS, B_ROWS, CONSUMERS, BLOCK_N,
                )  # fmt: skip
            step += 1


@gluon.jit
def consume(
    consumer: gl.constexpr, c_desc, scale_a_ptr, scale_b_ptr, bias_ptr, a_smem, b_smem, right_smem, c_smem, full, empty,
    M, N, K, K_part, A_ROWS: gl.constexpr, B_ROWS: gl.constexpr, C_ROWS: gl.constexpr, A_IN_REGISTERS: gl.constexpr,
    BIAS_ROWS: gl.constexpr, SPLIT: gl.constexpr, CONSUMERS: gl.constexpr, BLOCK_N: gl.constexpr,
    BLOCK_K: gl.constexpr, STAGES: gl.constexpr, GROUP_M: gl.constexpr,
):  # fmt: skip
    """A consumer warpgroup computes WGMMA_M rows of each tile, [WGMMA_M, BLOCK_N], in float32 registers.

    Blocks have powers of two columns: a tile of 192 is a left block of 128 and a right one of 64.

    One wgmma stays in flight while the warpgroup waits for the next operands. It releases a stage one step late, when
    the wgmma that reads the stage has finished. With A in registers no wgmma stays in flight, because it may still read
    the registers that the next load of A overwrites; the wgmma of the other warpgroup overlaps instead.

    The warpgroups are not synchronized: during the epilogue of one, the other uses the tensor cores.
    """
    BLOCK_M: gl.constexpr = WGMMA_M * CONSUMERS
    PART_N: gl.constexpr = c_smem.shape[2] if C_ROWS else c_smem.shape[1]
    IN_FLIGHT: gl.constexpr = 0 if A_IN_REGISTERS else 1
    INSTRUCTION_K: gl.constexpr = 256 // a_smem.dtype.primitive_bitwidth
    LEFT: gl.constexpr = left_columns(BLOCK_N)
    RIGHT: gl.constexpr = BLOCK_N - LEFT
    ACC: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, LEFT, INSTRUCTION_K])
    if RIGHT > 0:
        RIGHT_ACC: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, RIGHT, INSTRUCTION_K])
    step = 0
    items = work_items(M, N, K, K_part, SPLIT, BLOCK_M, BLOCK_N)
    for work in range(gl.program_id(0), items, gl.num_programs(0)):
        _, off_n, begin, end, row = tile_and_terms(work, M, N, K, K_part, SPLIT, BLOCK_M, BLOCK_N, GROUP_M)
        acc = gl.zeros([WGMMA_M, LEFT], gl.float32, ACC)
        if RIGHT > 0:
            right = gl.zeros([WGMMA_M, RIGHT], gl.float32, RIGHT_ACC)
        for off_k in range(begin, end, BLOCK_K):
            stage = step % STAGES
            mbarrier.wait(full.index(stage), step // STAGES & 1)
            a = a_smem.index(stage * CONSUMERS + consumer)
            b = b_smem.index(stage)
            if not A_ROWS:
                a = a.permute([1, 0])
            if not B_ROWS:
                b = b.permute([1, 0])
            if A_IN_REGISTERS:
                a = a.load(gl.DotOperandLayout(0, ACC, k_width=1))
            acc = hopper.warpgroup_mma(a, b, acc, is_async=True)
            if RIGHT > 0:
                b = right_smem.index(stage)
                right = hopper.warpgroup_mma(a, b if B_ROWS else b.permute([1, 0]), right, is_async=True)
                acc, right = hopper.warpgroup_mma_wait(2 * IN_FLIGHT, deps=(acc, right))
            else:
                acc = hopper.warpgroup_mma_wait(IN_FLIGHT, deps=(acc,))
            mbarrier.arrive(empty.index((step + STAGES - IN_FLIGHT) % STAGES), pred=off_k - begin >= IN_FLIGHT)
            step += 1
        if IN_FLIGHT == 1:
            if RIGHT > 0:
                acc, right = hopper.warpgroup_mma_wait(0, deps=(acc, right))
            else:
                acc = hopper.warpgroup_mma_wait(0, deps=(acc,))
            mbarrier.arrive(empty.index((step + STAGES - 1) % STAGES))

        if scale_a_ptr is not None:
            gl.static_assert(RIGHT == 0)
            acc *= gl.load(scale_a_ptr) * gl.load(scale_b_ptr)
        if bias_ptr is not None:
            first = row + consumer * WGMMA_M
            acc = bias_and_sigmoid(acc, bias_ptr, first, off_n, M, N, BIAS_ROWS)
        parts = split_columns(acc, LEFT // PART_N)
        if RIGHT > 0:
            if bias_ptr is not None:
                right = bias_and_sigmoid(right, bias_ptr, first, off_n + LEFT, M, N, BIAS_ROWS)
            parts = parts + split_columns(right, RIGHT // PART_N)
        epilogue(parts, c_desc, c_smem, row + consumer * WGMMA_M, off_n, consumer, CONSUMERS, C_ROWS)
    tma.store_wait(0)


@gluon.jit
def consumer_partition(
    consumer: gl.constexpr, c_desc, scale_a_ptr, scale_b_ptr, bias_ptr, a_smem, b_smem, right_smem, c_smem, full, empty,
    M, N, K, K_part, A_ROWS: gl.constexpr, B_ROWS: gl.constexpr, C_ROWS: gl.constexpr, A_IN_REGISTERS: gl.constexpr,
    BIAS_ROWS: gl.constexpr,
    PROMOTED: gl.constexpr, SPLIT: gl.constexpr, CONSUMERS: gl.constexpr, BLOCK_N: gl.constexpr,
    BLOCK_K: gl.constexpr, STAGES: gl.constexpr, GROUP_M: gl.constexpr,
):  # fmt: skip
    """The code of consumer warpgroup number `consumer`."""
    if PROMOTED:
        consume_promoted(consumer, c_desc, scale_a_ptr, scale_b_ptr, a_smem, b_smem, c_smem, full, empty, M, N, K,
                         C_ROWS, CONSUMERS, BLOCK_N, BLOCK_K, STAGES, GROUP_M)  # fmt: skip
    else:
        consume(consumer, c_desc, scale_a_ptr, scale_b_ptr, bias_ptr, a_smem, b_smem, right_smem, c_smem, full, empty,
                M, N, K, K_part, A_ROWS, B_ROWS, C_ROWS, A_IN_REGISTERS, BIAS_ROWS, SPLIT, CONSUMERS, BLOCK_N,
                BLOCK_K, STAGES, GROUP_M)  # fmt: skip


@gluon.jit(do_not_specialize=["M", "N", "K", "K_part"])
def gluon_matmul_kernel(
    a_desc, b_desc, right_desc, c_desc, scale_a_ptr, scale_b_ptr, bias_ptr, M, N, K, K_part,
    A_ROWS: gl.constexpr, B_ROWS: gl.constexpr, C_ROWS: gl.constexpr, A_IN_REGISTERS: gl.constexpr,
    BIAS_ROWS: gl.constexpr,
    DTYPE: gl.constexpr, PROMOTED: gl.constexpr, SPLIT: gl.constexpr, CONSUMERS: gl.constexpr, BLOCK_N: gl.constexpr,
    BLOCK_K: gl.constexpr, STAGES: gl.constexpr, BUFFERS: gl.constexpr, GROUP_M: gl.constexpr,
):  # fmt: skip
    """A persistent program computes tiles program_id, program_id + num_programs, ... of C.

    A tile is [WGMMA_M * CONSUMERS, BLOCK_N]; right_desc loads the columns of B beyond the largest power of two.
    Warp-specialized: one producer warp loads by TMA, CONSUMERS warpgroups multiply by wgmma.
    Every stage has two mbarriers: `full` completes when TMA has written it, `empty` when every consumer has read it.
    With a bias of the columns, or with BIAS_ROWS of the rows, the results are sigma(C + bias).
    A_ROWS: the descriptor's rows are rows of A, otherwise columns of A; B_ROWS and C_ROWS likewise.
    """
    gl.static_assert(CONSUMERS == 1 or CONSUMERS == 2)
    a_smem = gl.allocate_shared_memory(
        DTYPE,
        [STAGES * CONSUMERS] + a_desc.block_type.shape,  # noqa: RUF005
        a_desc.layout,
    )
    b_smem = gl.allocate_shared_memory(DTYPE, [STAGES] + b_desc.block_type.shape, b_desc.layout)  # noqa: RUF005
    if left_columns(BLOCK_N) < BLOCK_N:
        right_smem = gl.allocate_shared_memory(
            DTYPE,
            [STAGES] + right_desc.block_type.shape,  # noqa: RUF005
            right_desc.layout,
        )
    else:
        right_smem = b_smem
    c_smem = gl.allocate_shared_memory(
        c_desc.dtype,
        [BUFFERS * CONSUMERS] + c_desc.block_type.shape,  # noqa: RUF005
        c_desc.layout,
    )
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(STAGES):
        mbarrier.init(full.index(i), count=1)
        mbarrier.init(empty.index(i), count=CONSUMERS)
    hopper.fence_async_shared()

    # The first loads start before the warps specialize. All four warps synchronize before each: more loads are slower.
    AHEAD: gl.constexpr = 1 if BLOCK_N == 256 else 3
    gl.static_assert(AHEAD <= STAGES)
    off_m, off_n, begin, end, _ = tile_and_terms(
        gl.program_id(0), M, N, K, K_part, SPLIT, WGMMA_M * CONSUMERS, BLOCK_N, GROUP_M
    )
    for i in gl.static_range(AHEAD):
        off_k = begin + i * BLOCK_K
        load_stage(
            a_desc, b_desc, right_desc, a_smem, b_smem, right_smem, full, i, off_m, off_n, off_k, off_k < end,
            A_ROWS, B_ROWS, CONSUMERS, BLOCK_N,
        )  # fmt: skip

    # setmaxnreg: the producer gives up registers, consumer threads get 240.
    if CONSUMERS == 2:
        gl.warp_specialize(
            [
                (consumer_partition, (0, c_desc, scale_a_ptr, scale_b_ptr, bias_ptr, a_smem, b_smem, right_smem,
                                      c_smem, full, empty, M, N, K, K_part, A_ROWS, B_ROWS, C_ROWS,
                                      A_IN_REGISTERS, BIAS_ROWS, PROMOTED, SPLIT, CONSUMERS, BLOCK_N,
                                      BLOCK_K, STAGES, GROUP_M)),
                (consumer_partition, (1, c_desc, scale_a_ptr, scale_b_ptr, bias_ptr, a_smem, b_smem, right_smem,
                                      c_smem, full, empty, M, N, K, K_part, A_ROWS, B_ROWS, C_ROWS,
                                      A_IN_REGISTERS, BIAS_ROWS, PROMOTED, SPLIT, CONSUMERS, BLOCK_N,
                                      BLOCK_K, STAGES, GROUP_M)),
                (producer, (a_desc, b_desc, right_desc, a_smem, b_smem, right_smem, full, empty, M, N, K, K_part,
                            A_ROWS, B_ROWS, SPLIT, CONSUMERS, BLOCK_N, BLOCK_K, STAGES, GROUP_M, AHEAD)),
            ],
            worker_num_warps=[4, 1],
            worker_num_regs=[240, 24],
        )  # fmt: skip
    else:
        gl.warp_specialize(
            [
                (consumer_partition, (0, c_desc, scale_a_ptr, scale_b_ptr, bias_ptr, a_smem, b_smem, right_smem,
                                      c_smem, full, empty, M, N, K, K_part, A_ROWS, B_ROWS, C_ROWS,
                                      A_IN_REGISTERS, BIAS_ROWS, PROMOTED, SPLIT, CONSUMERS, BLOCK_N,
                                      BLOCK_K, STAGES, GROUP_M)),
                (producer, (a_desc, b_desc, right_desc, a_smem, b_smem, right_smem, full, empty, M, N, K, K_part,
                            A_ROWS, B_ROWS, SPLIT, CONSUMERS, BLOCK_N, BLOCK_K, STAGES, GROUP_M, AHEAD)),
            ],
            worker_num_warps=[1],
            worker_num_regs=[24],
        )  # fmt: skip


KEY = ["M", "N", "K", "A_ROWS", "B_ROWS", "C_ROWS", "DTYPE", "PROMOTED"]
gluon_matmul_kernel = autotune(CONFIGS, KEY, short_list)(gluon_matmul_kernel)


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

    Shapes: a (M, K), b (K, N), K = 0 included. The output is contiguous.
    Strides: any. A matrix, including the output, is copied for TMA if neither its rows nor its columns start at
    multiples of 16 bytes; the copy takes its size in memory. A tf32 or float8 operand is also copied if wgmma cannot
    read its layout.
    Dtypes: float16, bfloat16, and float32 with precision="tf32"; sums in float32, rounded once at the end. For tf32 the
    tensor cores truncate float32 to 11 significant bits. float8_e4m3fn, with a float32 scale of shape () for each
    operand, gives bfloat16: "promoted" adds sums of 128 products in float32, "fast" leaves all sums to the tensor
    cores, which keep 14 bits.
    Plans: in 16 bits a model (`_plan_gluon.py`) chooses the tile, parts of K and, for few rows, the transpose of C.
    Tail: TMA reads zeros beyond the edges and does not write there.
    Errors: ValueError for other shapes, dtypes, devices or precisions; NotImplementedError for float32 with
    precision="ieee", for M or N above 2^27 or K above 2^30, and for a GPU other than Hopper.
    Source: the persistent, warp-specialized kernels of CUTLASS ("cooperative" schedule), without clusters.
    """
    check_matmul(a, b, scale_a, scale_b, precision=precision, float8=True)
    check_gpu("matmul", "a", a)
    (M, K), N = a.shape, b.shape[1]
    if torch.cuda.get_device_capability(a.device)[0] != 9:
        raise NotImplementedError("matmul: wgmma needs a Hopper GPU (compute capability 9.0)")
    check_tensor_cores(a, M, N, precision)
    dtype = torch.bfloat16 if a.dtype == torch.float8_e4m3fn else a.dtype
    if K == 0:
        return torch.zeros((M, N), dtype=dtype, device=a.device)
    out = torch.empty((M, N), dtype=dtype, device=a.device)
    if M > 0 and N > 0:
        with device_of(a):
            launch_product(a, b, out, scale_a, scale_b, precision)
    return out


def config(
    a: Tensor, b: Tensor, scale_a: Tensor | None = None, scale_b: Tensor | None = None, *, precision: str = "ieee"
) -> str:
    """The kernels that `matmul` runs: `pad_both; gluon parts=4; add_parts`. Empty if the result is empty or K is 0."""
    (M, K), N = a.shape, b.shape[1]
    if M * N * K == 0:
        return ""
    K_part, transposed = _parts_and_order(a, b, False)
    product = "gluon" + f" parts={triton.cdiv(K, K_part)}" * (K_part < K) + " transposed" * transposed
    if K_part < K:
        return "; ".join([*copies(a, b), product, "add_parts"])
    return "; ".join([*copies(a, b), product, *([] if is_stored_by_tma(a, N) else ["pad"])])


def is_stored_by_tma(a: Tensor, N: int) -> bool:
    """True if TMA can store the product of `a` and a matrix of N columns; otherwise it is copied (`tma_output`)."""
    unit = 8 if a.element_size() < 4 else 4  # elements of C in 16 bytes
    return N % unit == 0 or (N == 1 and a.shape[0] % unit == 0)


def launch_product(
    a: Tensor,
    b: Tensor,
    out: Tensor,
    scale_a: Tensor | None,
    scale_b: Tensor | None,
    precision: str,
    bias: Tensor | None = None,
) -> None:
    """Stores a b in out, which is not empty; with a contiguous bias of its columns, in 16 bits, sigma(a b + bias)."""
    (M, K), N = a.shape, b.shape[1]
    left, right, turned = operands(a, b)
    K_part, transposed = _parts_and_order(a, b, bias is not None)
    turned = turned != transposed
    if transposed:
        left, right = as_transpose(right), as_transpose(left)
    if turned:
        M, N = N, M
    given = (scale_a, scale_b, bias), turned, precision == "promoted"
    if K_part >= K:
        with tma_output(out, out.element_size()) as target:
            _launch_tiles(left, right, target, target.row_major != turned, M, N, K, K, *given)
        return
    parts, rows, pitch = triton.cdiv(K, K_part), triton.cdiv(M, 2 * ROWS) * 2 * ROWS, triton.cdiv(N, 4) * 4
    sums = torch.empty((parts * rows, pitch), dtype=torch.float32, device=a.device)
    _launch_tiles(left, right, TmaMatrix(sums, pitch, True), True, M, N, K, K_part, *given)
    of_parts = sums.view(parts, rows, pitch)[:, :M, :N]
    add_strided_parts(of_parts.transpose(1, 2) if turned else of_parts, out)


def _parts_and_order(a: Tensor, b: Tensor, biased: bool) -> tuple[int, bool]:
    """Terms of a part of K, and whether the transpose of C is computed; for 16 bits by the model."""
    (M, K), N = a.shape, b.shape[1]
    if a.element_size() != 2:
        return K, False
    x = Problem(M, N, K, False, False, output_is_odd(M, N), device(a))
    plan, _ = best_of(x, turns=not biased or N % 8 == 0, divides=not biased)
    return K if plan.parts == 1 else triton.cdiv(triton.cdiv(K, STEP), plan.parts) * STEP, plan.transposed


def output_is_odd(M: int, N: int) -> bool:
    """True if TMA cannot write a contiguous 16-bit output: it has several rows, not all at multiples of 16 bytes."""
    return M > 1 and N > 1 and N % 8 != 0


def _launch_tiles(
    left: TmaMatrix, right: TmaMatrix, target: TmaMatrix, c_rows: bool, M: int, N: int, K: int, K_part: int,
    vectors: tuple[Tensor | None, Tensor | None, Tensor | None], turned: bool, promoted: bool,
) -> None:  # fmt: skip
    parts, processors = triton.cdiv(K, K_part), multiprocessors(left.matrix)
    launch(
        gluon_matmul_kernel, lambda config: persistent_grid(tile_count(config, M, N) * parts, processors),
        *map(_descriptor, (left, right, right, target)), *vectors, M, N, K, K_part,
        A_ROWS=left.row_major, B_ROWS=right.row_major, C_ROWS=c_rows,
        A_IN_REGISTERS=left.matrix.dtype == torch.float32 and not left.row_major, BIAS_ROWS=turned,
        DTYPE=DTYPES[left.matrix.dtype], PROMOTED=promoted, SPLIT=parts > 1,
    )  # fmt: skip


def _descriptor(x: TmaMatrix) -> TensorDescriptor:
    """A Gluon TMA descriptor of x. The configuration sets its block shape."""
    element = x.matrix.element_size()
    layout = gl.NVMMASharedLayout(SWIZZLE, 8 * element, rank=2)
    return TensorDescriptor(x.matrix, list(x.matrix.shape), [x.pitch, 1], [ROWS, SWIZZLE // element], layout)
