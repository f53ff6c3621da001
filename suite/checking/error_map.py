"""Where a result is wrong: the share of wrong elements in each tile of it, as text that fits a cell of a table.

    32x16 ..../.12./.##.        tiles of 32 x 16 elements, in 3 rows of 4

A result of one axis has one row of tiles. Of more than two axes, the last is added up and those before the last two are
one axis: attention has heads downwards and queries across; with one head queries downwards and features across.
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

MOST_TILES = 32
"""Tiles along an axis."""
NONE, ALL = ".", "#"
"""Tiles in which no element is wrong, and every one. Between them a digit counts tenths, rounded up, 9 at most."""


@dataclass(frozen=True)
class ErrorMap:
    """Rows of tiles, a character for each; `tile` has the elements of a tile downwards and across."""

    tile: tuple[int, int]
    rows: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.tile[0]}x{self.tile[1]} {'/'.join(self.rows)}"

    @property
    def is_uniform(self) -> bool:
        """Whether it says nothing of where the result is wrong: nearly everywhere, or in all tiles alike."""
        kinds = set("".join(self.rows))
        return len(kinds) < 2 or kinds == {"9", ALL}

    @classmethod
    def of(cls, text: str) -> ErrorMap:
        """The inverse of `str`. Raises `ResultsError` for another text."""
        size, _, tiles = text.partition(" ")
        down, cross, across = size.partition("x")
        rows = tuple(tiles.split("/"))
        if not (cross and down.isdecimal() and across.isdecimal() and set("".join(rows)) <= {NONE, ALL, *"123456789"}):
            raise ResultsError(f"error_map is {text[:40]!r}; expected tiles as in '32x16 ..../.12./.##.'")
        return cls((int(down), int(across)), rows)

    def shares(self) -> list[list[float]]:
        """The shares from 0 to 1, as far as the text has them."""
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
        """Count a piece of the result, which lies at `part`."""
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
        of_axis = [
            [min(tile, size - start) for start in range(0, size, tile)]
            for size, tile in zip(self._size, self._tile, strict=True)
        ]
        rows = [
            "".join(
                character(count / (down * across * share)) for count, across in zip(counts, of_axis[1], strict=True)
            )
            for counts, down in zip(self._counts.tolist(), of_axis[0], strict=True)
        ]
        return ErrorMap((self._tile[0], self._tile[1]), tuple(rows))


def _tile(size: int) -> int:
    """The smallest power of two of which MOST_TILES cover an axis."""
    return 1 << max(0, math.ceil(size / MOST_TILES) - 1).bit_length()


def character(share: float) -> str:
    """The character of a share of wrong elements."""
    return NONE if share == 0 else ALL if share == 1 else str(min(9, math.ceil(round(10 * share, 6))))
