"""Lays out tables of text within a width. No cell is cut.

A table that is too wide gets heads on two lines; if that is not enough, its columns continue in a further block.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.text import Text

GAP = 2
MIN_WIDTH = 56
"""The smallest width in characters. Narrower terminals are treated as this wide."""


@dataclass(frozen=True)
class Field:
    """One column: its head, its cells and their alignment. `styles` has a style for each cell, or is empty."""

    head: str
    cells: Sequence[str]
    is_right: bool = True
    styles: Sequence[str] = field(default=())


def table(fields: Sequence[Field], width: int, row_styles: Sequence[str] = ()) -> list[Text]:
    """The lines of a table at most `width` wide. Every block begins with the first column."""
    width = max(width, MIN_WIDTH)
    first, *rest = fields
    names = [_folded(cell, max(16, 2 * width // 5)) for cell in first.cells]
    name_width = max(len(part) for parts in (*names, [first.head]) for part in parts)
    lines: list[Text] = []
    for block in _blocks(rest, width - name_width):
        lines += _lines(block, first.head, names, name_width, row_styles)
    return lines


def wrapped(text: str, width: int, *, indent: str = "") -> list[str]:
    """`text` on lines at most `width` wide. Lines after the first begin with `indent`."""
    found = textwrap.wrap(text, max(width, MIN_WIDTH), subsequent_indent=indent, break_on_hyphens=False)
    return found or [""]


def clipped(text: str, width: int) -> str:
    """`text`, cut off at `width` characters if it is longer."""
    return text if len(text) <= width else f"{text[: width - 3]}..."


def _folded(text: str, width: int) -> list[str]:
    """A name on lines at most `width` wide, folded after commas and at spaces."""
    return [line.replace(", ", ",").rstrip() for line in wrapped(text.replace(",", ", "), width, indent=" ")]


@dataclass(frozen=True)
class _Block:
    """Columns that stand side by side, the lines of their heads, and the spaces between them."""

    columns: Sequence[Field]
    heads: Sequence[Sequence[str]]
    gap: int

    @property
    def widths(self) -> list[int]:
        return [max(map(len, (*each.cells, *head))) for each, head in zip(self.columns, self.heads, strict=True)]

    def fits(self, width: int) -> bool:
        return sum(self.widths) + self.gap * len(self.columns) <= width


def _blocks(fields: Sequence[Field], width: int) -> list[_Block]:
    """All columns in one block, with folded heads and smaller gaps if needed; else in as many blocks as needed."""
    folded = [_folded_head(each) for each in fields]
    for whole in (
        _Block(fields, [[each.head] for each in fields], GAP),
        *(_Block(fields, folded, gap) for gap in (GAP, 1)),
    ):
        if whole.fits(width):
            return [whole]
    blocks: list[_Block] = []
    for each, head in zip(fields, folded, strict=True):
        longer = _Block([*blocks[-1].columns, each], [*blocks[-1].heads, head], GAP) if blocks else None
        if longer is not None and longer.fits(width):
            blocks[-1] = longer
        else:
            blocks.append(_Block([each], [head], GAP))
    return blocks


def _folded_head(column: Field) -> list[str]:
    """The head on one line if it is no wider than the cells, else on two."""
    widest = max(map(len, (*column.cells, *column.head.split())), default=1)
    return textwrap.wrap(column.head, max(widest, (len(column.head) + 1) // 2, 1), break_on_hyphens=False) or [""]


def _lines(
    block: _Block, first: str, names: Sequence[Sequence[str]], wide: int, row_styles: Sequence[str]
) -> list[Text]:
    """The lines of a block. The table's first column, with head `first` and cells `names`, stands in front."""
    from rich.text import Text

    widths, gap = block.widths, " " * block.gap
    height = max(map(len, block.heads), default=1)
    lines = []
    for number in range(height):
        line = Text((first if number == height - 1 else "").ljust(wide), style="bold")
        for column, head, width in zip(block.columns, block.heads, widths, strict=True):
            text = ([""] * (height - len(head)) + list(head))[number]
            line.append(gap + _placed(text, width, column))
        lines.append(line)
    for number, (name, *more) in enumerate(names):
        line = Text(name.ljust(wide), style=row_styles[number] if row_styles else "")
        for column, width in zip(block.columns, widths, strict=True):
            line.append(gap)
            line.append(_placed(column.cells[number], width, column), column.styles[number] if column.styles else "")
        lines += [line, *map(Text, more)]
    for line in lines:
        line.rstrip()
    return lines


def _placed(text: str, width: int, column: Field) -> str:
    return text.rjust(width) if column.is_right else text.ljust(width)
