"""Tiles of nvcuda::wmma in the emulation; with a GPU the same kernel runs there too."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
import torch

from cuda_ref import build

SOURCE = Path(__file__).parent / "mma.cu"
pytestmark = pytest.mark.skipif(build.missing("cpu") is not None, reason=str(build.missing("cpu")))
on_both = pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])


def stored(tile: torch.Tensor, by_columns: bool) -> torch.Tensor:
    return (tile.T if by_columns else tile).contiguous()


@on_both
def test_a_tile_is_multiplied_in_every_layout(device: str) -> None:
    random = torch.Generator().manual_seed(0)
    a, b, c = (torch.randint(-8, 9, (16, 16), generator=random).to(device) for _ in range(3))
    expected = 2 * (a.cpu() @ b.cpu() + c.cpu())  # integers, so that all sums are exact
    for layouts in itertools.product((False, True), repeat=3):
        out = torch.full((16, 16), torch.nan, device=device)
        tiles = [
            stored(tile, by_columns) for tile, by_columns in zip((a.half(), b.half(), c.float()), layouts, strict=True)
        ]
        build.launch(SOURCE, "multiply", torch.device(device), *tiles, out, *map(int, layouts))
        assert torch.equal(stored(out, layouts[2]).cpu(), expected.float()), layouts


def test_a_tile_at_a_wrong_address_is_refused() -> None:
    tile = torch.zeros(16 * 16 + 8, dtype=torch.float16)
    c, out = torch.zeros(16, 16), torch.zeros(16, 16)
    with pytest.raises(build.CudaError, match="multiples of 32"):
        build.launch(SOURCE, "multiply", torch.device("cpu"), tile[8:], tile, c, out, 0, 0, 0)
