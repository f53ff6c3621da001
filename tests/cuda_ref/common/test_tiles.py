"""The grouped tile scheduler computes each tile once, in groups of rows, and its quotients are exact."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cuda_ref import build

SOURCE = Path(__file__).parents[1] / "host" / "tiles.cu"
pytestmark = pytest.mark.skipif(build.missing("cpu") is not None, reason=str(build.missing("cpu")))
quick = settings(derandomize=True, database=None, deadline=None, max_examples=60)


@quick
@given(st.integers(1, 2**31 - 1), st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=20))
@example(1, [2**31 - 1])
@example(2**31 - 1, [2**31 - 1, 2**31 - 2, 0])
@example(3, [2**31 - 1, 2**31 - 2, 2**31 - 3])
@example(2**30 + 1, [2**31 - 1, 2**30, 2**30 + 1])
def test_quotients_are_exact(divisor: int, numbers: list[int]) -> None:
    near = [k for n in numbers for k in (n // divisor * divisor - 1, n // divisor * divisor, n) if k >= 0]
    x = torch.tensor(near, dtype=torch.int32)
    out = torch.full_like(x, -1)
    build.launch(SOURCE, "quotient", x.device, x, out, len(x), divisor)
    assert out.tolist() == [n // divisor for n in near]


@quick
@given(st.integers(1, 40), st.integers(1, 40), st.sampled_from([4, 8]))
def test_tiles_are_visited_once_in_groups_of_rows(tiles_m: int, tiles_n: int, group_m: int) -> None:
    groups = [range(first, min(first + group_m, tiles_m)) for first in range(0, tiles_m, group_m)]
    expected = [[m, n] for rows in groups for n in range(tiles_n) for m in rows]
    out = torch.full((tiles_m * tiles_n, 2), -1, dtype=torch.int32)
    build.launch(SOURCE, "visit", out.device, out, tiles_m, tiles_n, group_m)
    assert out.tolist() == expected
