"""The tile schedulers of _common/tiles.py: every tile once, in grouped order, by exact division."""

from __future__ import annotations

import pytest
import torch
import triton
import triton.language as tl
from hypothesis import given, settings
from hypothesis import strategies as st

from triton_kernels._common.tiles import exact_quotient, grouped_tile_any, tile_offsets

SIZE = 256  # numbers divided by one program
QUICK = settings(derandomize=True, database=None, deadline=None, max_examples=60)


def grouped(tiles_m: int, tiles_n: int, group: int) -> list[tuple[int, int]]:
    """Tiles in the expected order: down the rows of a group, then the next column, then the next group."""
    groups = [range(first, min(first + group, tiles_m)) for first in range(0, tiles_m, group)]
    return [(m, n) for rows in groups for n in range(tiles_n) for m in rows]


@triton.jit
def quotient_kernel(x_ptr, y_ptr, out_ptr, SIZE: tl.constexpr):
    offs = tl.arange(0, SIZE)
    tl.store(out_ptr + offs, exact_quotient(tl.load(x_ptr + offs), tl.load(y_ptr + offs)))


@triton.jit
def visit_kernel(out_ptr, M, N, GROUP_M: tl.constexpr, ANY: tl.constexpr):
    tile = tl.program_id(0)
    if ANY:
        row, column = grouped_tile_any(tile, tl.cdiv(M, 64), tl.cdiv(N, 128), GROUP_M)
    else:
        off_m, off_n = tile_offsets(tile, M, N, 64, 128, GROUP_M)
        row, column = off_m // 64, off_n // 128
    tl.store(out_ptr + 2 * tile, row)
    tl.store(out_ptr + 2 * tile + 1, column)


@settings(parent=QUICK, max_examples=100)
@given(seed=st.integers(0, 2**32 - 1), quotient_bits=st.integers(0, 21), divisor_bits=st.integers(0, 30))
def test_quotient_is_exact(device: str, seed: int, quotient_bits: int, divisor_bits: int) -> None:
    """Multiples of random divisors, one below and one above them."""
    source = torch.Generator().manual_seed(seed)
    y = torch.randint(1, 2**divisor_bits + 1, (SIZE,), generator=source)
    multiple = torch.randint(0, 2**quotient_bits + 1, (SIZE,), generator=source).minimum((2**31 - 2) // y) * y
    x = (multiple + torch.randint(-1, 2, (SIZE,), generator=source)).clamp(min=0)
    x[0], y[0] = 3 * 16777219, 16777219  # in float32 the quotient is 3 - 2^-22: truncated, one too small
    x, y = x.int(), y.int()
    out = torch.full_like(x, -1, device=device)
    quotient_kernel[(1,)](x.to(device), y.to(device), out, SIZE=SIZE)
    assert torch.equal(out.cpu(), x // y)


@pytest.mark.parametrize("any_size", [False, True], ids=["tile_offsets", "grouped_tile_any"])
@settings(parent=QUICK, max_examples=15)
@given(grid=st.tuples(st.integers(1, 12), st.integers(1, 12)), group=st.sampled_from([2, 4, 8, 16]))
def test_every_tile_once_in_grouped_order(device: str, any_size: bool, grid: tuple[int, int], group: int) -> None:
    out = torch.full((grid[0] * grid[1], 2), -1, dtype=torch.int32, device=device)
    visit_kernel[(len(out),)](out, grid[0] * 64 - 1, grid[1] * 128, GROUP_M=group, ANY=any_size)
    assert [tuple(each) for each in out.tolist()] == grouped(*grid, group)
