"""Block sizes for kernels that compute each row of a matrix independently."""

from typing import NamedTuple

import triton

from triton_kernels._runtime.interpreter import INTERPRET

PER_THREAD = 32  # elements of a long row per thread, in float32 registers
# Elements per program, if it has several rows. Small programs end at different times, so loads and stores overlap.
PROGRAM = 2**18 if INTERPRET else 2048
LONGEST = 1024 * PER_THREAD  # longest row that a program of 1024 threads holds
MOST_ROWS = 512 if INTERPRET else 64

TILE = 2**16 if INTERPRET else 1024  # elements per program of an elementwise operation: 8 per thread of 4 warps


def row_tile(N: int) -> tuple[int, int]:
    """Rows and columns per program of an elementwise operation on rows of N columns: as much of a row as possible."""
    columns = min(triton.next_power_of_2(N), TILE)
    return TILE // columns, columns


class Blocks(NamedTuple):
    """Work of one program. rows: its rows. columns: columns that it loads at a time, a power of two. warps: its warps.
    holds_row: whether `columns` covers the row."""

    rows: int
    columns: int
    warps: int
    holds_row: bool

    def grid(self, M: int) -> tuple[int]:
        return (triton.cdiv(M, self.rows),)


def blocks(N: int) -> Blocks:
    """Blocks for rows of N columns: several short rows per program, or as much of a long row as the registers hold."""
    columns = min(triton.next_power_of_2(N), LONGEST)
    rows = min(max(1, PROGRAM // columns), MOST_ROWS) if N <= LONGEST else 1
    return Blocks(rows, columns, max(4, min(32, columns // (32 * PER_THREAD))), columns >= N)
