"""Maps the errors of a result: the share of wrong elements in each tile, as text that fits a cell of a table.

    32x16 ..../.12./.##.        tiles of 32 x 16 elements, in 3 rows of 4

A result of one axis has one row of tiles. With more than two axes, the last one is summed and the leading ones are
flattened: attention has heads downwards and queries across. A single head has queries downwards and features across.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from suite.core.errors import ResultsError
from suite.core.integers import cdiv

if TYPE_CHECKING:
    import torch

    from suite.problem.shape import Shape
    from suite.problem.variant import Part

MAX_TILES = 32
"""Largest number of tiles along an axis."""
NONE, ALL = ".", "#"
"""Characters of a tile without wrong elements, and of one in which all are wrong. Digits between them count tenths,
rounded up, 9 at most."""


@dataclass(frozen=True)
class ErrorMap:
    """Rows of tiles, one character for each tile. `tile` is the size of a tile in elements, downwards and across."""

    tile: tuple[int, int]
    rows: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.tile[0]}x{self.tile[1]} {'/'.join(self.rows)}"

    @property
    def is_uniform(self) -> bool:
        """True if the map does not locate the errors: all tiles are alike, or nearly everything is wrong."""
        kinds = set("".join(self.rows))
        return len(kinds) < 2 or kinds == {"9", ALL}

    @classmethod
    def parse(cls, text: str) -> ErrorMap:
        """Parse the text that `str` gives. Raises `ResultsError` for any other text."""
        size, _, tiles = text.partition(" ")
        down, cross, across = size.partition("x")
        rows = tuple(tiles.split("/"))
        if not (cross and down.isdecimal() and across.isdecimal() and set("".join(rows)) <= {NONE, ALL, *"123456789"}):
            raise ResultsError(f"error_map is {text[:40]!r}; expected tiles as in '32x16 ..../.12./.##.'")
        return cls((int(down), int(across)), rows)

    def shares(self) -> list[list[float]]:
        """Return the shares of wrong elements, from 0 to 1, in steps of a tenth."""
        return [[0.0 if c == NONE else 1.0 if c == ALL else int(c) / 10 for c in row] for row in self.rows]


class Tiles:
    """Counts the wrong elements of a result of `shape` by tile."""

    def __init__(self, shape: Shape, device: torch.device) -> None:
        import torch

        self._shape = shape
        leading = math.prod(shape[:-2])
        self._pooled = len(shape) > 2 and leading > 1
        whole = (leading, *shape[-2:]) if self._pooled else (1, *shape) if len(shape) < 2 else shape[-2:]
        self._size = (int(whole[0]), int(whole[1])) if len(whole) > 1 else (1, 1)
        self._tile = tuple(_tile(size) for size in self._size)
        counts = [cdiv(size, tile) for size, tile in zip(self._size, self._tile, strict=True)]
        self._counts = torch.zeros(counts, dtype=torch.float64, device=device)

    def add(self, wrong: torch.Tensor, part: Part) -> None:
        """Count the wrong elements of a piece of the result, which lies at `part`."""
        import torch

        if self._pooled:
            wrong = wrong.sum(dim=-1)
            part = part[:-1]
        leading, across = part[:-1], part[-1] if part else slice(0, 1)
        down = torch.zeros((), dtype=torch.int64, device=wrong.device)
        for piece, size in zip(leading, self._shape, strict=False):
            down = down[..., None] * size + torch.arange(piece.start, piece.stop, device=wrong.device)
        down = down.reshape(-1) // self._tile[0]
        columns = torch.arange(across.start, across.stop, device=wrong.device) // self._tile[1]
        rows = wrong.reshape(len(down), len(columns)).double()
        by_row = rows.new_zeros(self._counts.shape[0], len(columns)).index_add_(0, down, rows)
        self._counts.index_add_(1, columns, by_row)

    def map(self) -> ErrorMap:
        share = self._shape[-1] if self._pooled else 1
        tile_sizes = [
            [min(tile, size - start) for start in range(0, size, tile)]
            for size, tile in zip(self._size, self._tile, strict=True)
        ]
        rows = [
            "".join(
                character(count / (down * across * share)) for count, across in zip(counts, tile_sizes[1], strict=True)
            )
            for counts, down in zip(self._counts.tolist(), tile_sizes[0], strict=True)
        ]
        return ErrorMap((self._tile[0], self._tile[1]), tuple(rows))


def _tile(size: int) -> int:
    """Return the smallest power of two with which at most MAX_TILES tiles cover an axis."""
    return 1 << max(0, math.ceil(size / MAX_TILES) - 1).bit_length()


def character(share: float) -> str:
    """Return the character for a share of wrong elements."""
    return NONE if share == 0 else ALL if share == 1 else str(min(9, math.ceil(round(10 * share, 6))))
