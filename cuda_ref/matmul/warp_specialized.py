"""Matrix multiplication in CUDA on Hopper's tensor cores, with a producer warpgroup and two consumer warpgroups."""

from jaxtyping import Float
from torch import Tensor

from cuda_ref import build
from cuda_ref._runtime.contract import check_matmul
from cuda_ref._runtime.kept import kept
from cuda_ref.hopper.layouts import tma_layout
from cuda_ref.matmul._limits import check_16_bit, check_sizes

REQUIRES = "sm_90"


@kept
def matmul(a: Float[Tensor, "M K"], b: Float[Tensor, "K N"], *, precision: str = "ieee") -> Float[Tensor, "M N"]:
    """out[m, n] = sum over k of a[m, k] * b[k, n].

    Shapes: a (M, K), b (K, N), any sizes up to 2^30, K = 0 included; the output is contiguous.
    Strides: TMA copies the tiles. One dimension of each operand must be contiguous, the stride of the other one a
    multiple of 8 elements, and the first element at a multiple of 16 bytes.
    Dtypes: float16, bfloat16, the same for both; sums in float32, rounded once at the end.
    Precision: "ieee".
    Tail: TMA pads tiles of 128 x 256 that overhang with zeros; outputs beyond the edge are not stored.
    Devices: CUDA, compute capability 9.0.
    Raises: ValueError for other shapes, dtypes and precisions, and for tensors on different devices;
    NotImplementedError for float32, for other strides and sizes, and on other devices; build.CudaError if the launch
    fails.
    Source: see warp_specialized.cu.
    """
    M, N, K = check_matmul(a, b, precision=precision)
    check_16_bit(a)
    check_sizes((M, N, K), 30)
    if M == 0 or N == 0 or K == 0:
        return a.new_zeros(M, N)
    a_layout, b_layout = tma_layout("a", a, k_dim=1), tma_layout("b", b, k_dim=0)
    out = a.new_empty(M, N)
    build.launch(
        "matmul/warp_specialized", "matmul_warp_specialized", a.device,
        a, b, out, M, N, K, *a_layout, *b_layout, build.DTYPES[a.dtype],
    )  # fmt: skip
    return out
