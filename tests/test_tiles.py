"""The order in which matmul kernels visit the tiles of their output, each once, and the divisions in it."""

from __future__ import annotations

import inspect
from typing import Any

import jax.numpy as jnp
import pytest
import torch
import triton
import triton.language as tl
from hypothesis import given, settings
from hypothesis import strategies as st

from jax_impls import matmul_pallas
from triton_kernels import matmul, matmul_gluon, matmul_persistent

SIZE = 256  # of what Triton divides at one time
QUICK = settings(derandomize=True, database=None, deadline=None, max_examples=60)


def in_bands(tiles_m: int, tiles_n: int, band: int) -> list[tuple[int, int]]:
    """Down the rows of a band, then in the next column, then in the next band."""
    bands = [range(first, min(first + band, tiles_m)) for first in range(0, tiles_m, band)]
    return [(m, n) for rows in bands for n in range(tiles_n) for m in rows]


# Triton: quotient, which each file has for itself, and tile_offsets of those whose programs stay


@triton.jit
def quotient_kernel(x_ptr, y_ptr, out_ptr, PERSISTENT: tl.constexpr, SIZE: tl.constexpr):
    offs = tl.arange(0, SIZE)
    x, y = tl.load(x_ptr + offs), tl.load(y_ptr + offs)
    tl.store(out_ptr + offs, matmul_persistent.quotient(x, y) if PERSISTENT else matmul.quotient(x, y))


@triton.jit
def visit_kernel(out_ptr, M, N, GROUP_M: tl.constexpr):
    tile = tl.program_id(0)
    off_m, off_n = matmul_persistent.tile_offsets(tile, M, N, 64, 128, GROUP_M)
    tl.store(out_ptr + 2 * tile, off_m)
    tl.store(out_ptr + 2 * tile + 1, off_n)


@pytest.mark.parametrize("kernel", ["matmul", "matmul_persistent"])
@settings(parent=QUICK, max_examples=100)
@given(seed=st.integers(0, 2**32 - 1), quotients=st.integers(0, 21), divisors=st.integers(0, 30))
def test_a_quotient_in_floating_point_is_exact(
    kernel: str, device: str, seed: int, quotients: int, divisors: int
) -> None:
    """Multiples of divisors of so many bits, one below and one above them, for quotients of so many bits."""
    draw = torch.Generator().manual_seed(seed)
    y = torch.randint(1, 2**divisors + 1, (SIZE,), generator=draw)
    multiple = torch.randint(0, 2**quotients + 1, (SIZE,), generator=draw).minimum((2**31 - 2) // y) * y
    x = (multiple + torch.randint(-1, 2, (SIZE,), generator=draw)).clamp(min=0)
    x[0], y[0] = 3 * 16777219, 16777219  # rounded, 3 - 2^-22: the quotient is one too small
    x, y = x.int(), y.int()
    out = torch.full_like(x, -1, device=device)
    quotient_kernel[(1,)](x.to(device), y.to(device), out, PERSISTENT=kernel == "matmul_persistent", SIZE=SIZE)
    assert torch.equal(out.cpu(), x // y)


@settings(parent=QUICK, max_examples=15)
@given(grid=st.tuples(st.integers(1, 20), st.integers(1, 20)), band=st.sampled_from([4, 8, 16, 32]))
def test_triton_visits_each_tile_once_in_bands(device: str, grid: tuple[int, int], band: int) -> None:
    out = torch.full((grid[0] * grid[1], 2), -1, dtype=torch.int32, device=device)
    visit_kernel[(len(out),)](out, grid[0] * 64 - 1, grid[1] * 128, GROUP_M=band)
    assert [(m // 64, n // 128) for m, n in out.tolist()] == in_bands(*grid, band)


@pytest.mark.parametrize("name", ["quotient", "tile_offsets"])
def test_gluon_has_the_same_order(name: str) -> None:
    def text(module: Any) -> str:
        return inspect.getsource(getattr(module, name).fn).replace("@gluon.", "@triton.").replace("gl.", "tl.")

    assert text(matmul_gluon) == text(matmul_persistent)


# Pallas: what each GPC gets of the tiles that are computed at one time


@settings(parent=QUICK, max_examples=15)
@given(st.integers(1, 500), st.integers(1, 66))
def test_pallas_deals_each_tile_once(tiles: int, clusters: int) -> None:
    dealt = matmul_pallas._dealt(jnp.arange(tiles), clusters, tiles).tolist()
    for first in range(0, tiles, clusters):
        wave = dealt[first : first + clusters]
        assert sorted(wave) == list(range(first, first + len(wave)))
        for gpc in range(min(matmul_pallas.GPCS, len(wave))):
            run = wave[gpc :: matmul_pallas.GPCS]
            assert run == list(range(run[0], run[0] + len(run)))
