"""The order in which CUDA matmul kernels visit the tiles of their output, each once, and the divisions in it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cuda_ref import build

SOURCE = Path(__file__).parent / "cuda_host" / "tiles.cu"
QUICK = settings(derandomize=True, database=None, deadline=None, max_examples=60)
grids = st.tuples(st.integers(1, 40), st.integers(1, 40))


def in_bands(tiles_m: int, tiles_n: int, band: int) -> list[tuple[int, int]]:
    """Down the rows of a band, then in the next column, then in the next band."""
    bands = [range(first, min(first + band, tiles_m)) for first in range(0, tiles_m, band)]
    return [(m, n) for rows in bands for n in range(tiles_n) for m in rows]


# CUDA: Bands and Divisor of tiles.cuh


needs_compiler = pytest.mark.skipif(build.missing("cpu") is not None, reason=str(build.missing("cpu")))


@needs_compiler
@QUICK
@given(st.integers(1, 2**31 - 1), st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=20))
@example(1, [2**31 - 1])
@example(2**31 - 1, [2**31 - 1, 2**31 - 2, 0])
@example(3, [2**31 - 1, 2**31 - 2, 2**31 - 3])
@example(2**30 + 1, [2**31 - 1, 2**30, 2**30 + 1])
def test_a_divisor_divides(divisor: int, numbers: list[int]) -> None:
    near = [k for n in numbers for k in (n // divisor * divisor - 1, n // divisor * divisor, n) if k >= 0]
    x = torch.tensor(near, dtype=torch.int32)
    out = torch.full_like(x, -1)
    build.launch(SOURCE, "quotient", x.device, x, out, len(x), divisor)
    assert out.tolist() == [n // divisor for n in near]


@needs_compiler
@QUICK
@given(grids, st.sampled_from([4, 8]))
def test_cuda_visits_each_tile_once_in_bands(grid: tuple[int, int], band: int) -> None:
    out = torch.full((grid[0] * grid[1], 2), -1, dtype=torch.int32)
    build.launch(SOURCE, "visit", out.device, out, *grid, band)
    assert [tuple(each) for each in out.tolist()] == in_bands(*grid, band)
