"""Products of each expert's rows with its weights in Triton: a program finds its expert from sums over the sizes."""

import triton
import triton.language as tl
from jaxtyping import Float, Int32
from torch import Tensor

from triton_kernels._runtime.autotuner import autotune
from triton_kernels._runtime.experts import check_grouped_matmul
from triton_kernels._runtime.interpreter import INTERPRET, dot_operand, empty_output, finished_output
from triton_kernels._runtime.launch import device_of, kept, launch

DETERMINISTIC = True
STEP_BYTES = 128  # bytes of a row of x per step: one cache line


@triton.jit
def find_rows(sizes_ptr, stride_s, E, tile, BLOCK_M: tl.constexpr, EXPERTS: tl.constexpr):
    """Returns the expert of a tile of rows, its first row, and the row after the last one of the expert.

    Each expert has cdiv(size, BLOCK_M) tiles, none if it has no rows. EXPERTS: a power of two, at least E. The expert
    is EXPERTS if there are fewer tiles.
    """
    experts = tl.arange(0, EXPERTS)
    sizes = tl.load(sizes_ptr + experts.to(tl.int64) * stride_s, mask=experts < E, other=0)
    tiles = tl.cdiv(sizes, BLOCK_M)
    before = tl.cumsum(tiles, 0) <= tile  # experts whose tiles come before this one
    expert = tl.sum(before.to(tl.int32), 0)
    start = tl.sum(tl.where(before, sizes, 0), 0)
    row = start + (tile - tl.sum(tl.where(before, tiles, 0), 0)) * BLOCK_M
    return expert, row, start + tl.sum(tl.where(experts == expert, sizes, 0), 0)


@triton.jit
def grouped_matmul_kernel(
    x_ptr, w_ptr, sizes_ptr, y_ptr, T, E, K, N, stride_xt, stride_xk, stride_we, stride_wk, stride_wn, stride_s,
    EXPERTS: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """One program computes up to BLOCK_M rows of one expert and BLOCK_N columns, BLOCK_K terms of K at a time."""
    tiles_n = tl.cdiv(N, BLOCK_N)
    expert, row, end = find_rows(sizes_ptr, stride_s, E, tl.program_id(0) // tiles_n, BLOCK_M, EXPERTS)
    end = tl.minimum(end, T)
    if expert < E:
        offs_m = row + tl.arange(0, BLOCK_M)[:, None]  # [BLOCK_M, 1]
        offs_n = tl.program_id(0) % tiles_n * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]  # [1, BLOCK_N]
        offs_k = tl.arange(0, BLOCK_K)
        w_ptr += expert.to(tl.int64) * stride_we
        x_ptrs = x_ptr + offs_m.to(tl.int64) * stride_xt + offs_k[None, :].to(tl.int64) * stride_xk
        w_ptrs = w_ptr + offs_k[:, None].to(tl.int64) * stride_wk + offs_n.to(tl.int64) * stride_wn
        acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        for k in range(0, K, BLOCK_K):
            x = tl.load(x_ptrs, mask=(offs_m < end) & (offs_k[None, :] < K - k), other=0.0)
            w = tl.load(w_ptrs, mask=(offs_k[:, None] < K - k) & (offs_n < N), other=0.0)
            acc = tl.dot(dot_operand(x), dot_operand(w), acc, input_precision="ieee")
            x_ptrs += tl.full((), BLOCK_K, tl.int64) * stride_xk
            w_ptrs += tl.full((), BLOCK_K, tl.int64) * stride_wk
        tl.store(y_ptr + offs_m.to(tl.int64) * N + offs_n, acc, mask=(offs_m < end) & (offs_n < N))


def _config(BLOCK_M: int, BLOCK_N: int, num_warps: int, num_stages: int) -> triton.Config:
    return triton.Config({"BLOCK_M": BLOCK_M, "BLOCK_N": BLOCK_N}, num_warps=num_warps, num_stages=num_stages)


CONFIGS = [_config(128, 128, 8, 4), _config(64, 128, 4, 4), _config(64, 64, 4, 4), _config(16, 64, 4, 4)]
if INTERPRET:  # without autotuning: one tile that numpy multiplies fast
    TILE: dict[str, int] = {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 128}
else:
    TILE = {}
    KEY = ["T", "E", "K", "N", "stride_xt", "stride_xk", "stride_we", "stride_wk", "stride_wn"]
    grouped_matmul_kernel = autotune(CONFIGS, KEY)(grouped_matmul_kernel)


@kept
def grouped_matmul(
    x: Float[Tensor, "T K"], weight: Float[Tensor, "E K N"], sizes: Int32[Tensor, "E"]
) -> Float[Tensor, "T N"]:
    """y[t, n] = sum over k of x[t, k] weight[e, k, n], where row t is among the sizes[e] rows of expert e.

    The rows are in the order of the experts; sizes are not negative, and their sum is T. The host does not read them:
    it launches as many programs as there can be tiles, T / BLOCK_M plus one for each expert.

    Shapes: x (T, K), weight (E, K, N), sizes (E,), any strides, K = 0 included; the output is contiguous.
    Dtypes: float32 (ieee products), float16, bfloat16; sums in float32, rounded once at the end; sizes int32.
    Tail: rows of the next expert are neither read nor written; offsets are int64.
    Errors: ValueError for other shapes, dtypes or devices; NotImplementedError for T, E, K or N above 2^26.
    Source: Triton's tutorial on grouped products, whose programs read the shape of each product on the device.
    """
    T, E, K, N = check_grouped_matmul(x, weight, sizes)
    check_sizes("grouped_matmul", T, E, K, N)
    out = empty_output((T, N), x.dtype, x.device)
    if T > 0 and N > 0:
        tile = TILE or {"BLOCK_K": STEP_BYTES // x.element_size()}
        with device_of(x):
            launch(
                grouped_matmul_kernel,
                lambda meta: ((T // meta["BLOCK_M"] + min(T, E)) * triton.cdiv(N, meta["BLOCK_N"]),),
                x, weight, sizes, out, T, E, K, N, *x.stride(), *weight.stride(), *sizes.stride(),
                EXPERTS=experts_of(E), **tile,
            )  # fmt: skip
    return finished_output(out, x.dtype)


def experts_of(E: int) -> int:
    """The length of a vector of all experts: a power of two, of at least 16 for scans on a GPU."""
    return max(16, triton.next_power_of_2(E))


def check_sizes(operation: str, *sizes: int) -> None:
    """Raises NotImplementedError for sizes whose tiles have no 32-bit numbers."""
    if max(sizes) > 2**26:
        raise NotImplementedError(f"{operation}: T, E, K and N must be at most 2^26; got {sizes}")
