"""Grouped tile scheduler: the order in which programs compute the tiles of a matrix, for Triton and Gluon kernels."""

import triton
import triton.language as tl


@triton.constexpr_function
def left_columns(BLOCK_N):
    """The largest power of two that is at most BLOCK_N."""
    return 1 << (BLOCK_N.bit_length() - 1)


@triton.jit
def exact_quotient(x, y):
    """x // y, for 0 <= x // y <= 2^21 and y > 0.

    Divides in float32 and corrects by one: an integer division delays a program's first loads by over 100 cycles.
    """
    q = (x / y).to(tl.int32)  # float32 rounding: off by at most 1
    rest = x - q * y
    return q + (rest >= y).to(tl.int32) - (rest < 0).to(tl.int32)


@triton.jit
def grouped_tile(tile, tiles_m, tiles_n, GROUP_M: tl.constexpr):
    """(row, column) of a tile: groups of GROUP_M tile rows, each taken column by column.

    Programs of one wave then share most of their operands in the L2 cache. Needs tiles_m and tiles_n within the range
    of `exact_quotient`. Source: "L2 cache optimizations" of Triton's matrix multiplication tutorial.
    """
    group = exact_quotient(tile, GROUP_M * tiles_n)
    group_rows = min(tiles_m - group * GROUP_M, GROUP_M)
    in_group = tile - group * GROUP_M * tiles_n
    column = exact_quotient(in_group, group_rows)
    return group * GROUP_M + in_group - column * group_rows, column


@triton.jit
def tile_offsets(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """First row and column of a tile of an M x N matrix, in the order of `grouped_tile`."""
    row, column = grouped_tile(tile, tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N), GROUP_M)
    return row * BLOCK_M, column * BLOCK_N


@triton.jit
def grouped_tile_any(tile, tiles_m, tiles_n, GROUP_M: tl.constexpr):
    """`grouped_tile` by integer division, for any number of tiles."""
    group = tile // (GROUP_M * tiles_n)
    group_rows = min(tiles_m - group * GROUP_M, GROUP_M)
    in_group = tile % (GROUP_M * tiles_n)
    return group * GROUP_M + in_group % group_rows, in_group // group_rows
