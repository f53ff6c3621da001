"""Matrix multiplication in CUDA for few rows or columns: each warp copies its strip of the larger operand once.

Adds tiles of 8 or 16 rows or columns, and warps that divide k, to mma.py.
"""

from jaxtyping import Float
from torch import Tensor

from cuda_ref import build
from cuda_ref._runtime.contract import check_matmul
from cuda_ref._runtime.kept import kept
from cuda_ref.hopper.layouts import find_row_layout
from cuda_ref.hopper.pitched import pitched
from cuda_ref.matmul._limits import check_16_bit, check_sizes
from cuda_ref.matmul._plan import best_plan
from cuda_ref.matmul._tiles import STREAM_FEW, Plan, described


@kept
def matmul(a: Float[Tensor, "M K"], b: Float[Tensor, "K N"], *, precision: str = "ieee") -> Float[Tensor, "M N"]:
    """out[m, n] = sum over k of a[m, k] * b[k, n].

    Shapes: a (M, K), b (K, N), M or N at most 16, others up to 2^30, K = 0 included; the output is contiguous.
    Strides: any. If the larger operand has no contiguous dimension, it is copied first; this takes its size in memory.
    Dtypes: float16, bfloat16, the same for both; sums in float32, rounded once at the end.
    Precision: "ieee".
    Tail: elements beyond the edge are not read, and are zero in products.
    Devices: CUDA, compute capability 8.0 or newer; only Hopper divides k among blocks. On a CPU one warp sums all of k.
    Raises: ValueError for other shapes, dtypes and precisions, and for tensors on different devices;
    NotImplementedError for float32 and for larger sizes; build.CudaError if the launch fails.
    Source: see stream.cu.
    """
    M, N, K = check_matmul(a, b, precision=precision)
    check_16_bit(a)
    if min(M, N) > STREAM_FEW:
        raise NotImplementedError(f"matmul: M or N must be at most {STREAM_FEW}; got M={M} and N={N}")
    check_sizes((M, N, K), 30)
    if M == 0 or N == 0 or K == 0:
        return a.new_zeros(M, N)
    return run(best_plan(a, b, ("stream",)), a, b)


def config(a: Tensor, b: Tensor, *, precision: str = "ieee") -> str:
    """The tile and parts that `matmul` runs, and the operands that it copies."""
    return described(best_plan(a, b, ("stream",)), **copies(a, b)) if a.numel() * b.numel() > 0 else ""


def copies(a: Tensor, b: Tensor) -> dict[str, bool]:
    """The larger operand, by name, and whether it is copied because no dimension is contiguous."""
    name, larger = ("b", b.t()) if a.shape[0] <= b.shape[1] else ("a", a)
    return {name: find_row_layout(larger, k_dim=1) is None}


def run(plan: Plan, a: Tensor, b: Tensor) -> Tensor:
    """The product of two matrices that are not empty, by a plan of the kernel "stream"."""
    (M, K), N = a.shape, b.shape[1]
    out = a.new_empty(M, N)
    few, stream, out_strides = (a, b.t(), (N, 1)) if M <= N else (b.t(), a, (1, N))
    layout = find_row_layout(stream, k_dim=1)
    if layout is None:
        (stream,) = pitched((stream, 1))
        layout = (False, stream.stride(0))
    across_k, stride = layout
    build.launch(
        "matmul/stream", "matmul_stream", a.device,
        stream, few, out, stream.shape[0], few.shape[0], K, not across_k, stride, *few.stride(), *out_strides,
        plan.tile, plan.parts, build.DTYPES[a.dtype],
    )  # fmt: skip
    return out
