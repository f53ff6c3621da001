"""Divides a narrow product in 16 bits (many rows, few terms, few columns) into the work of blocks of _narrow.cu."""

import math
from functools import lru_cache
from typing import NamedTuple

SHARED_BYTES = 227 * 1024  # shared memory of a multiprocessor
STAGES, MOST_WARPS, FEW_WARPS = 4, 16, 4
"""Stages of a warp's ring; most warps of a block; fewest warps that saturate memory, if there are as many tiles."""
TILE_ROWS = (16, 32, 8)
"""Rows of a tile, by plan. 32 rows read b from shared memory half as often; 8 rows occupy more warps."""
PIECES = (128, 64)
"""Terms of a stage, for rows with more terms."""
MOST_COLUMNS, MOST_TERMS = 512, 256
"""Most columns; most terms with several groups of columns, which need whole rows in shared memory."""


class Division(NamedTuple):
    """The arguments of matmul_narrow."""

    tile_rows: int
    tile_columns: int
    """Columns of a group."""
    rows: int
    """Rows of a block."""
    warps: int
    sharing: int
    """Warps that share a tile."""
    piece: int
    """Terms of a stage."""
    stages: int
    chunks: int
    """Most 16-byte chunks of a row in a stage."""
    pitch: int
    """Bytes from row to row of a stage."""


def _up(size: int, by: int) -> int:
    return -(-size // by) * by


def _columns_of(N: int, tile_rows: int) -> int:
    """Columns per group: the number that leaves the fewest columns unused."""
    eights = -(-N // 8)
    if tile_rows > 16:
        return 64
    return 8 if eights == 1 else 32 if (eights - 1) % 8 < 4 else 64


@lru_cache(maxsize=4096)
def divide(M: int, N: int, K: int, tile: int, processors: int) -> Division | None:
    """The division for a tile of TILE_ROWS; None if the product does not fit."""
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
    """The division with the fewest rounds of tiles that fits into shared memory, and for these the fewest warps.

    None if shared memory holds fewer warps than saturate the device memory.
    """
    behind = 8 - math.gcd(K, 8)  # most elements of the previous row in a row's first chunk
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
