"""Product with weights of 4 bits in CUDA for few rows, as in decoding: bound by reading the weights.

Adds to the plain kernel loads of 16 bytes, tensor cores (mma.sync), and clusters that divide k.
"""

from jaxtyping import Float, UInt8
from torch import Tensor

from cuda_ref import build
from cuda_ref._runtime.kept import kept
from cuda_ref.int4_matmul._launch import arguments, checked, copies
from cuda_ref.matmul._plan import multiprocessors
from cuda_ref.matmul._tiles import Plan, described

REQUIRES = "sm_90"
DETERMINISTIC = True
MOST_ROWS = 32
COLUMNS, GROUP = 64, 128
"""Columns of out of a cluster, and terms of a group."""
K_WARPS = 4
"""Warps of a block that divide k."""


@kept
def int4_matmul(
    x: Float[Tensor, "M K"],
    weight: UInt8[Tensor, "N K_2"],
    scale: Float[Tensor, "N G_K"],
    zero: UInt8[Tensor, "N G_K"] | None = None,
) -> Float[Tensor, "M N"]:
    """out[m, n] = sum over groups g of scale[n, g] * (sum over k in g of x[m, k] * (code[n, k] - zero[n, g])).

    Shapes: x (M, K), weight (N, K / 2) with two codes a byte, the lower first, scale and zero (N, K / 128), rounded up;
    M at most 32, other sizes up to 2^30, K = 0 included. The output is contiguous. Zero points are from 0 to 15; 8 if
    zero is not given.
    Strides: any. x and weight are copied first unless rows are contiguous at multiples of 16 bytes and K is a multiple
    of 32; a copy takes its size in memory.
    Dtypes: float16 and bfloat16, weight and zero uint8. Weights are not rounded: the scales multiply the sums of
    groups. Sums are float32, rounded once.
    Devices: CUDA, compute capability 9.0.
    Raises: ValueError for other shapes, dtypes and devices; NotImplementedError for more rows and larger sizes;
    build.CudaError if the launch fails.
    Source: see few.cu.
    """
    M, N, K = checked(x, weight, scale, zero)
    if M > MOST_ROWS:
        raise NotImplementedError(f"int4_matmul: M must be at most {MOST_ROWS}; got M={M}")
    if M == 0 or N == 0 or K == 0:
        return x.new_zeros(M, N)
    return run(choose(x, weight), x, weight, scale, zero)


def config(x: Tensor, weight: Tensor, scale: Tensor, zero: Tensor | None = None) -> str:
    """The kernel, the blocks of a cluster that divide k, and the operands that it copies."""
    return described(choose(x, weight), **copies(x, weight)) if x.numel() * weight.numel() > 0 else ""


def choose(x: Tensor, weight: Tensor) -> Plan:
    """The parts of k with the least work in all waves of blocks. Each warp has at least one group of each part."""
    clusters, groups = -(-len(weight) // COLUMNS), -(-x.shape[1] // GROUP)
    resident = (2 if len(x) <= 8 else 1) * (multiprocessors(x.device) if x.is_cuda else 1)
    parts = [p for p in (1, 2, 4, 8) if p == 1 or p * K_WARPS <= groups]
    return Plan("int4_few", 0, min(parts, key=lambda p: (-(-clusters * p // resident) / p, p)))


def run(plan: Plan, x: Tensor, weight: Tensor, scale: Tensor, zero: Tensor | None = None) -> Tensor:
    """The product of operands that are not empty, by a plan."""
    out = x.new_empty(len(x), len(weight))
    build.launch("int4_matmul/few", "int4_few", x.device, *arguments(x, weight, scale, zero, out), plan.parts)
    return out
