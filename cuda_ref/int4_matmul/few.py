"""Product with weights of 4 bits in CUDA for few rows, as in decoding: bound by reading the weights.

Adds to the plain kernel a ring of copies by TMA, tensor cores (mma.sync), and clusters that divide k.
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
MOST_ROWS = 16
ROWS, PARTS = (32, 64, 96, 128, 192, 224), range(1, 9)
"""Rows of the weights in a tile, and blocks of a cluster."""
BOX = 256
"""Terms of a box: the least that a block takes."""
CLUSTERED, LARGEST_GPC = 16, 18
"""Multiprocessors of a GPC that hold clusters of more than two blocks, and the most that a GPC may have."""
# Times are in ns, fitted to an H100.
OF_A_ROW = {8: 6.5, 16: 7.6}
"""Time of a box for each row of the weights, by the rows of x that a kernel is compiled for."""
LEAST_OF_A_BOX, OF_A_TILE, OF_A_CLUSTER, OF_A_PART = 280, 500, 2_400, 200
"""Least time of a box; time of a tile besides its boxes: in one block, in a cluster, and for each block of it."""


@kept
def int4_matmul(
    x: Float[Tensor, "M K"],
    weight: UInt8[Tensor, "N K_2"],
    scale: Float[Tensor, "N G_K"],
    zero: UInt8[Tensor, "N G_K"] | None = None,
) -> Float[Tensor, "M N"]:
    """out[m, n] = sum over groups g of scale[n, g] * (sum over k in g of x[m, k] * (code[n, k] - zero[n, g])).

    Shapes: x (M, K), weight (N, K / 2) with two codes a byte, the lower first, scale and zero (N, K / 128), rounded up;
    M at most 16, other sizes up to 2^30, K = 0 included. The output is contiguous. Zero points are from 0 to 15; 8 if
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
    """The kernel, the rows of the weights in a tile, the blocks that divide k, and the operands that it copies."""
    if x.numel() * weight.numel() == 0:
        return ""
    plan = choose(x, weight)
    return described(plan._replace(kernel=f"int4_few rows={plan.tile}"), **copies(x, weight))


def choose(x: Tensor, weight: Tensor) -> Plan:
    """The rows of a tile, and the blocks that divide k, with the least time of a block by a simple model."""
    of_a_row = OF_A_ROW[8 if len(x) <= 8 else 16]
    return fastest("int4_few", {rows: max(LEAST_OF_A_BOX, rows * of_a_row) for rows in ROWS}, x, weight)


def fastest(kernel: str, of_a_box: dict[int, float], x: Tensor, weight: Tensor) -> Plan:
    """The fastest plan of a kernel by the model. of_a_box: time per box in ns, for each number of rows of a tile."""
    processors = multiprocessors(x.device) if x.is_cuda else 1
    boxes, N = -(-x.shape[1] // BOX), len(weight)

    def time(plan: Plan) -> float:
        tiles = -(-N // plan.tile)
        turns = -(-tiles // _clusters(processors, plan.parts))
        of_a_tile = OF_A_CLUSTER + plan.parts * OF_A_PART if plan.parts > 1 else OF_A_TILE
        return turns * (-(-boxes // plan.parts) * of_a_box[plan.tile] + of_a_tile)

    return min((Plan(kernel, rows, parts) for parts in PARTS if parts <= boxes for rows in of_a_box), key=time)


def _clusters(processors: int, parts: int) -> int:
    """Clusters that run at a time, one block on a multiprocessor."""
    if parts <= 2:
        return max(1, processors // parts)
    return max(1, processors // LARGEST_GPC * (CLUSTERED // parts))


def run(plan: Plan, x: Tensor, weight: Tensor, scale: Tensor, zero: Tensor | None = None) -> Tensor:
    """The product of operands that are not empty, by a plan."""
    out = x.new_empty(len(x), len(weight))
    given = arguments(x, weight, scale, zero, out)
    build.launch("int4_matmul/few", "int4_few", x.device, *given, plan.tile, plan.parts)
    return out
