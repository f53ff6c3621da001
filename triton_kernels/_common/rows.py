"""Kernels that compute each row of a matrix by itself: how many rows and columns a program takes."""

from typing import NamedTuple

import triton

from triton_kernels._runtime.interpreter import INTERPRET

PER_THREAD = 32  # elements of a long row, as float32 in registers
# Elements of a program with several rows: small programs end, and give their place, at different times. The interpreter
# takes its time for each program.
PROGRAM = 2**18 if INTERPRET else 2048
LONGEST = 1024 * PER_THREAD  # columns that one program holds: more threads there are not
MOST_ROWS = 512 if INTERPRET else 64


class Blocks(NamedTuple):
    """rows: rows of a program. columns: columns that it loads at a time, a power of two. warps: its warps. holds_row:
    these are all columns."""

    rows: int
    columns: int
    warps: int
    holds_row: bool

    def grid(self, M: int) -> tuple[int]:
        return (triton.cdiv(M, self.rows),)


def blocks(N: int) -> Blocks:
    """Blocks for rows of N columns: several short rows a program; of a long row as much as the registers hold."""
    columns = min(triton.next_power_of_2(N), LONGEST)
    rows = min(max(1, PROGRAM // columns), MOST_ROWS) if N <= LONGEST else 1
    return Blocks(rows, columns, max(4, min(32, columns // (32 * PER_THREAD))), columns >= N)
