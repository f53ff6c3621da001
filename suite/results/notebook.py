"""The DataFrame that `suite.compare` returns. A notebook or a prompt shows it as `compare` shows rows on a terminal."""

from __future__ import annotations

import io
import shutil
from collections.abc import Callable, Sequence

import pandas as pd
from rich.console import Console
from rich.text import Text

from suite.results.frame_rows import rows_of
from suite.results.groups import cases
from suite.results.render import case_lines, chart_lines, matrix_lines, overview_lines
from suite.results.row import COLUMNS, Row

WIDTH, MAX_CASES = 110, 20
"""Characters in a line where the terminal's are unknown; the largest number of cases that are shown as tables."""
BLOCK = '<pre style="white-space:pre;overflow-x:auto;line-height:1.3">{code}</pre>'


class ComparisonFrame(pd.DataFrame):
    """Rows of `compare`. A selection of rows is shown the same way, a selection of columns as any DataFrame."""

    @property
    def _constructor(self) -> Callable[..., ComparisonFrame]:
        return ComparisonFrame

    @property
    def _has_rows(self) -> bool:
        return not self.empty and set(COLUMNS) <= set(self.columns)

    def _repr_html_(self) -> str | None:
        return html(self) if self._has_rows else super()._repr_html_()  # type: ignore[misc]

    def __repr__(self) -> str:
        return text(self, shutil.get_terminal_size((WIDTH, 0)).columns) if self._has_rows else super().__repr__()


def html(table: pd.DataFrame) -> str:
    """HTML of the rows: a table for each case, a chart, and a table over all cases, as coloured preformatted text."""
    rows = rows_of(table)
    chart = chart_lines(rows, WIDTH)
    tables = [line for lines in _tables(rows, WIDTH) for line in [*lines, Text()]]
    return _as_html([*tables, *chart, *([Text()] if chart else []), *overview_lines(rows, WIDTH)])


def text(table: pd.DataFrame, width: int) -> str:
    """The rows as plain text: a table for each case, and a table over all cases."""
    rows = rows_of(table)
    parts = [*_tables(rows, width), overview_lines(rows, width), matrix_lines(rows, width)]
    return "\n\n".join("\n".join(line.plain for line in lines) for lines in parts if lines)


def _tables(rows: Sequence[Row], width: int) -> list[list[Text]]:
    """The table of each case, or a line if there are more than MAX_CASES."""
    groups = cases(rows)
    if len(groups) > MAX_CASES:
        return [[Text(f"{len(groups)} cases, too many for a table each; frame.to_string() has all rows")]]
    return [case_lines(group, width) for group in groups]


def _as_html(lines: Sequence[Text]) -> str:
    console = Console(record=True, file=io.StringIO(), width=WIDTH, force_jupyter=False, no_color=False)
    console.print(Text("\n").join(lines), soft_wrap=True)
    return console.export_html(code_format=BLOCK, inline_styles=True)
