"""Products in 16 bits with few terms: a few threads for each element of the output, any strides."""

from torch import Tensor

from cuda_ref import build
from cuda_ref._matmul_plan import SHORT_GRIDS, SHORT_LANES, Plan


def run(plan: Plan, a: Tensor, b: Tensor) -> Tensor:
    """The product of two matrices that are not empty; 2^plan.tile threads divide a sum, or one has a grid of them."""
    (M, K), N = a.shape, b.shape[1]
    out = a.new_empty(M, N)
    grid = plan.tile > SHORT_LANES
    build.launch(
        "_short", "matmul_short_grid" if grid else "matmul_short", a.device,
        a, b, out, M, N, K, *a.stride(), *b.stride(),
        SHORT_GRIDS[plan.tile] if grid else plan.tile, build.DTYPES[a.dtype],
    )  # fmt: skip
    return out
