"""Small products in 16 bits, any strides: a thread, several threads or a block compute an element of the output."""

from torch import Tensor

from cuda_ref import build
from cuda_ref.matmul._tiles import SHORT_BLOCKS, SHORT_GRIDS, SHORT_TILES, Plan


def run(plan: Plan, a: Tensor, b: Tensor) -> Tensor:
    """The product of two matrices that are not empty, by a "short" plan.

    Depending on plan.tile, 2^tile threads or a block share the sum of an element, a thread computes a grid of
    elements, or a block computes a tile.
    """
    (M, K), N = a.shape, b.shape[1]
    out = a.new_empty(M, N)
    if plan.tile in SHORT_GRIDS:
        function, number = "matmul_short_grid", SHORT_GRIDS[plan.tile]
    elif plan.tile in SHORT_TILES:
        function, number = "matmul_short_tile", SHORT_TILES[plan.tile]
    else:
        function, number = "matmul_short", SHORT_BLOCKS.get(plan.tile, plan.tile)
    build.launch(
        "matmul/_short", function, a.device,
        a, b, out, M, N, K, *a.stride(), *b.stride(), number, build.DTYPES[a.dtype],
    )  # fmt: skip
    return out
