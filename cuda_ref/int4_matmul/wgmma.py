"""Product with weights of 4 bits in CUDA on Hopper's tensor cores: weights are made in registers, for many rows of x.

Adds TMA, wgmma with the weights as its operand in registers, and persistent blocks to the plain kernel.
"""

from jaxtyping import Float, UInt8
from torch import Tensor

from cuda_ref import build
from cuda_ref._runtime.kept import kept
from cuda_ref.int4_matmul._launch import arguments, checked, copies
from cuda_ref.matmul._plan import multiprocessors

REQUIRES = "sm_90"
DETERMINISTIC = True
ROWS, COLUMNS = (64, 128, 256), 128
"""Rows of out in a tile, of the three compiled kernels, and columns."""
ROWS_OF_A_STEP = 32
"""Rows of x whose products take as long as the rest of a step: assumed, not measured."""


@kept
def int4_matmul(
    x: Float[Tensor, "M K"],
    weight: UInt8[Tensor, "N K_2"],
    scale: Float[Tensor, "N G_K"],
    zero: UInt8[Tensor, "N G_K"] | None = None,
) -> Float[Tensor, "M N"]:
    """out[m, n] = sum over k of x[m, k] * w[n, k], with w[n, k] = scale[n, k / 128] * (code[n, k] - zero[n, k / 128]).

    Shapes: x (M, K), weight (N, K / 2) with two codes a byte, the lower first, scale and zero (N, K / 128), rounded up;
    sizes up to 2^30, K = 0 included. The output is contiguous. Zero points are from 0 to 15; 8 if zero is not given.
    Strides: any; x and weight are copied first where few.py copies them.
    Dtypes: float16 and bfloat16, weight and zero uint8. Weights are rounded once to x's type, and must be finite there;
    sums are float32, rounded once.
    Tail: TMA pads tiles that overhang the inputs with zeros and does not write elements that overhang the output.
    Devices: CUDA, compute capability 9.0.
    Raises: ValueError for other shapes, dtypes and devices; NotImplementedError for larger sizes; build.CudaError if
    the launch fails.
    Source: see wgmma.cu.
    """
    M, N, K = checked(x, weight, scale, zero)
    if M == 0 or N == 0 or K == 0:
        return x.new_zeros(M, N)
    return run(choose(x, weight), x, weight, scale, zero)


def config(x: Tensor, weight: Tensor, scale: Tensor, zero: Tensor | None = None) -> str:
    """The kernel, its tile, and the operands that it copies."""
    if x.numel() * weight.numel() == 0:
        return ""
    names = " and ".join(name for name, copied in copies(x, weight).items() if copied)
    return f"int4_wgmma {choose(x, weight)}x{COLUMNS}{f' ({names} copied)' if names else ''}"


def choose(x: Tensor, weight: Tensor) -> int:
    """The rows of a tile with the least work of a multiprocessor."""
    processors = multiprocessors(x.device) if x.is_cuda else 1

    def work(rows: int) -> int:
        tiles = -(-len(x) // rows) * -(-len(weight) // COLUMNS)
        return -(-tiles // processors) * (rows + ROWS_OF_A_STEP)

    return min(ROWS, key=work)


def run(rows: int, x: Tensor, weight: Tensor, scale: Tensor, zero: Tensor | None = None) -> Tensor:
    """The product of operands that are not empty, in tiles of `rows` rows of x."""
    out = x.new_empty(len(x), len(weight))
    build.launch("int4_matmul/wgmma", "int4_wgmma", x.device, *arguments(x, weight, scale, zero, out), rows)
    return out
