"""Matrix multiplication in CUDA for few rows, as in decoding: bound by reading b.

Adds tiles with few rows, two blocks per multiprocessor, and split-K within a cluster to tma_wgmma.py.
"""

from jaxtyping import Float
from torch import Tensor

from cuda_ref import build
from cuda_ref._runtime.contract import check_matmul
from cuda_ref._runtime.kept import kept
from cuda_ref.hopper.layouts import tma_layout
from cuda_ref.matmul._limits import check_16_bit, check_sizes
from cuda_ref.matmul._plan import best_plan
from cuda_ref.matmul._tiles import SKINNY_COLUMNS, SKINNY_M, Plan, described

REQUIRES = "sm_90"


@kept
def matmul(a: Float[Tensor, "M K"], b: Float[Tensor, "K N"], *, precision: str = "ieee") -> Float[Tensor, "M N"]:
    """out[m, n] = sum over k of a[m, k] * b[k, n].

    Shapes: a (M, K), b (K, N), M at most 32, K = 0 included; the output is contiguous.
    Strides: TMA copies the tiles. a must be contiguous along K, b along either dimension; the other stride must be a
    multiple of 8 elements, and the first element at a multiple of 16 bytes.
    Dtypes: float16, bfloat16, the same for both; sums in float32, rounded once at the end.
    Precision: "ieee".
    Plan: a model of the time chooses the tile, and the number of blocks of a cluster that divide k; see `config`.
    Tail: TMA pads tiles that overhang the inputs with zeros; outputs beyond the edge are not stored.
    Devices: CUDA, compute capability 9.0.
    Raises: ValueError for other shapes, dtypes and precisions, and for tensors on different devices;
    NotImplementedError for more rows, for float32, for other strides, and on other devices; build.CudaError if the
    launch fails.
    Source: see skinny.cu.
    """
    M, N, K = check_matmul(a, b, precision=precision)
    check_16_bit(a)
    if M > SKINNY_M:
        raise NotImplementedError(f"matmul: M must be at most {SKINNY_M}; got M={M}")
    check_sizes((M, N, K), 30)
    if M == 0 or N == 0 or K == 0:
        return a.new_zeros(M, N)
    tma_layout("a", a, k_dim=1, k_major_only=True)
    tma_layout("b", b, k_dim=0)
    return run(best_plan(a, b, ("skinny",)), a, b)


def config(a: Tensor, b: Tensor, *, precision: str = "ieee") -> str:
    """The tile and parts that `matmul` runs."""
    return described(best_plan(a, b, ("skinny",))) if a.numel() * b.numel() > 0 else ""


def run(plan: Plan, a: Tensor, b: Tensor) -> Tensor:
    """The product of two matrices that are not empty and that TMA can read, by a plan."""
    (M, K), N = a.shape, b.shape[1]
    _, a_stride = tma_layout("a", a, k_dim=1, k_major_only=True)
    b_layout = tma_layout("b", b, k_dim=0)
    out = a.new_empty(M, N)
    build.launch(
        "matmul/skinny", "matmul_skinny", a.device,
        a, b, out, M, N, K, a_stride, *b_layout, SKINNY_COLUMNS[plan.tile], plan.parts, build.DTYPES[a.dtype],
    )  # fmt: skip
    return out
