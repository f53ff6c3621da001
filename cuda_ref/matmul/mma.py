"""Matrix multiplication in CUDA by mma.sync: small outputs, rows at any address, sums divided within a cluster.

Adds tensor cores, and split-K within a cluster of blocks, to async_copies.py.
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
from cuda_ref.matmul._tiles import Plan, described


@kept
def matmul(a: Float[Tensor, "M K"], b: Float[Tensor, "K N"], *, precision: str = "ieee") -> Float[Tensor, "M N"]:
    """out[m, n] = sum over k of a[m, k] * b[k, n].

    Shapes: a (M, K), b (K, N), any sizes up to 2^30, K = 0 included; the output is contiguous.
    Strides: any. An operand without a contiguous dimension is copied first, which takes its size in memory.
    Dtypes: float16, bfloat16, the same for both; sums in float32, rounded once at the end.
    Precision: "ieee".
    Tail: copies pad tiles that overhang with zeros; outputs beyond the edge are not stored.
    Devices: CUDA, compute capability 8.0 or newer; only Hopper divides k. On a CPU tiles are of 32 x 32.
    Raises: ValueError for other shapes, dtypes and precisions, and for tensors on different devices;
    NotImplementedError for float32 and for larger sizes; build.CudaError if the launch fails.
    Source: see mma.cu.
    """
    M, N, K = check_matmul(a, b, precision=precision)
    check_16_bit(a)
    check_sizes((M, N, K), 30)
    if M == 0 or N == 0 or K == 0:
        return a.new_zeros(M, N)
    return run(best_plan(a, b, ("mma",)), a, b)


def config(a: Tensor, b: Tensor, *, precision: str = "ieee") -> str:
    """The tile and parts that `matmul` runs, and the operands that it copies."""
    return described(best_plan(a, b, ("mma",)), **copies(a, b)) if a.numel() * b.numel() > 0 else ""


def copies(a: Tensor, b: Tensor) -> dict[str, bool]:
    """The operands, by name, and whether they are copied because no dimension is contiguous."""
    return {"a": find_row_layout(a, k_dim=1) is None, "b": find_row_layout(b, k_dim=0) is None}


def run(plan: Plan, a: Tensor, b: Tensor) -> Tensor:
    """The product of two matrices that are not empty, by a plan of the kernel "mma"."""
    (M, K), N = a.shape, b.shape[1]
    a_layout, b_layout = find_row_layout(a, k_dim=1), find_row_layout(b, k_dim=0)
    if a_layout is None:
        (a,) = pitched((a, 1))
        a_layout = (False, a.stride(0))
    if b_layout is None:
        (b,) = pitched((b, 1))
        b_layout = (True, b.stride(0))
    out = a.new_empty(M, N)
    build.launch(
        "matmul/mma", "matmul_mma", a.device,
        a, b, out, M, N, K, *a_layout, *b_layout, plan.tile, plan.parts, build.DTYPES[a.dtype],
    )  # fmt: skip
    return out
