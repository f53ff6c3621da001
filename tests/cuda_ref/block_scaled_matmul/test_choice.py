"""The tile that the model chooses for block_scaled_matmul on Hopper."""

from __future__ import annotations

import pytest
import torch

from cuda_ref.block_scaled_matmul import auto, wgmma
from cuda_ref.matmul._model_tf32_float8 import Problem, predicted_us
from cuda_ref.matmul._tiles import Plan

# M, N, K; device times in us of tile 1 (128 x 256 in clusters of 2) and of tile 2 (128 x 128) on an H100 SXM, with a
# cold L2 cache: medians of the second run of results/nvidia-h100-80gb-hbm3/proof/block_scaled/variants.txt, tile 1 of
# `early` and tile 2 of `quads`. The constants of the model are fitted to these.
MEASURED = [
    ((4096, 7168, 16384), 676.9, 748.4),
    ((4096, 4096, 7168), 175.5, 190.6),
    ((4096, 7168, 2048), 100.8, 103.6),
    ((1024, 18432, 7168), 213.5, 211.2),
    ((4096, 24576, 1536), 254.0, 270.4),
    ((8192, 8192, 8192), 795.6, 868.4),
    ((2048, 5120, 13824), 233.5, 223.7),
    ((16384, 2048, 4096), 208.1, 227.4),
]


def problem(shape: tuple[int, int, int]) -> Problem:
    return Problem("wgmma8", *shape, 0, 132, promoted=True)


@pytest.mark.parametrize(("shape", "large", "square"), MEASURED, ids=str)
def test_the_faster_tile_is_chosen(shape: tuple[int, int, int], large: float, square: float) -> None:
    x = problem(shape)
    assert wgmma.best_of(x) == Plan("wgmma8", 1 if large < square else 2, 1)
    of_large, of_square = (predicted_us(Plan("wgmma8", tile, 1), x, wgmma.COSTS) for tile in (1, 2))
    assert of_square / of_large == pytest.approx(square / large, rel=0.05)


def test_few_tiles_are_divided_along_k() -> None:
    """A single tile would leave all other multiprocessors idle."""
    assert wgmma.best_of(problem((128, 128, 16384))).parts > 1
    assert wgmma.best_of(problem((128, 128, 128))).parts == 1


@pytest.mark.parametrize(("M", "N", "kernel"), [(32, 128, "few"), (33, 128, "wgmma"), (1, 129, "wgmma")])
def test_few_rows_are_left_to_few_if_its_blocks_are_resident(M: int, N: int, kernel: str) -> None:
    """A CPU counts as one multiprocessor, on which two blocks of 64 columns are resident: at most 128 columns."""
    a, b = (torch.empty(rows, 16, dtype=torch.float8_e4m3fn) for rows in (M, N))
    assert auto.choose(a, b) == kernel
