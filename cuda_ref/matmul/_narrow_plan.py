"""How a narrow product in 16 bits is divided: many rows of few terms, few columns; see _narrow.cu."""

import math
from functools import lru_cache
from typing import NamedTuple

SHARED_BYTES = 227 * 1024  # of a multiprocessor
STAGES, MOST_WARPS, FEW_WARPS = 4, 16, 4
"""Of a warp's ring; warps of a block, and the fewest that read memory fast enough, if there are as many tiles."""
TILE_ROWS = (16, 32, 8)
"""By the number of a plan's tile. 32 rows read b from shared memory half as often; 8 rows are for more warps."""
PIECES = (128, 64)
"""Terms of a stage, if a row has more."""
MOST_COLUMNS, MOST_TERMS = 512, 256
"""MOST_TERMS: of several groups of columns, which need whole rows."""


class Division(NamedTuple):
    """The arguments of matmul_narrow."""

    tile_rows: int
    tile_columns: int
    """Of a group of columns."""
    rows: int
    """Of a block."""
    warps: int
    sharing: int
    """Warps that share a tile."""
    piece: int
    """Terms of a stage."""
    stages: int
    chunks: int
    """16-byte chunks that a stage has of a row, at most."""
    pitch: int
    """Bytes from row to row of a stage."""


def _up(size: int, by: int) -> int:
    return -(-size // by) * by


def _columns_of(N: int, tile_rows: int) -> int:
    """Columns of a group: those that leave the fewest without work."""
    eights = -(-N // 8)
    if tile_rows > 16:
        return 64
    return 8 if eights == 1 else 32 if (eights - 1) % 8 < 4 else 64


@lru_cache(maxsize=4096)
def divide(M: int, N: int, K: int, tile: int, processors: int) -> Division | None:
    """The division for a tile of TILE_ROWS; None if there is none."""
    tile_rows, whole = TILE_ROWS[tile], _up(K, 16)
    columns = _columns_of(N, tile_rows)
    if N > MOST_COLUMNS or M * K < 8 or (columns < N and K > MOST_TERMS) or (tile_rows > 16 and N <= 32):
        return None
    rows = _up(-(-M // processors), 8)
    for piece in (whole,) if whole <= PIECES[0] or columns < N else PIECES:
        found = _with_piece(piece, N, K, tile_rows, columns, rows)
        if found is not None and (piece in (whole, PIECES[-1]) or found.warps >= min(8, -(-rows // tile_rows))):
            return found
    return None


def _with_piece(piece: int, N: int, K: int, tile_rows: int, columns: int, rows: int) -> Division | None:
    """As many warps as there are tiles, or as fit in shared memory in as many rounds."""
    behind = 8 - math.gcd(K, 8)  # the most elements of a row's first chunk that are of the row before
    chunks, pitch = (min(piece, K) + behind + 7) // 8, ((piece + behind + 7) // 8 | 1) * 16
    groups, pieces, tiles = -(-N // columns), -(-K // piece), -(-rows // tile_rows)
    left = SHARED_BYTES - _up(K, 16) * (groups * columns // 8 | 1) * 16
    rounded = tile_rows * (2 * N + 16 * (N % 16 == 0))
    for most in range(min(tiles, MOST_WARPS), min(tiles, FEW_WARPS) - 1, -1):
        rounds = -(-tiles // most)
        teams, stages = -(-tiles // rounds), min(STAGES, rounds * pieces)
        ring = stages * tile_rows * pitch
        if teams * (ring + rounded) > left:
            continue
        sharing = 1
        if rounds == 1 and groups > 1:
            sharing = max(1, min(groups, MOST_WARPS // teams, (left - teams * rounded) // (teams * ring)))
        return Division(tile_rows, columns, rows, teams * sharing, sharing, piece, stages, chunks, pitch)
    return None
