"""The DataFrame that `suite.compare` returns. A notebook shows it as `compare` shows rows on a terminal."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence

import pandas as pd
from rich.console import Console
from rich.text import Text

from suite.results.frame_rows import rows_of
from suite.results.groups import cases
from suite.results.render import case_lines, chart_lines, overview_lines
from suite.results.row import COLUMNS

WIDTH, MAX_CASES = 110, 20
"""Characters in a line; the largest number of cases that are each shown as a table."""
BLOCK = '<pre style="white-space:pre;overflow-x:auto;line-height:1.3">{code}</pre>'


class ComparisonFrame(pd.DataFrame):
    """Rows of `compare`. A selection of rows is shown the same way, a selection of columns as any DataFrame."""

    @property
    def _constructor(self) -> Callable[..., ComparisonFrame]:
        return ComparisonFrame

    def _repr_html_(self) -> str | None:
        if self.empty or not set(COLUMNS) <= set(self.columns):
            return super()._repr_html_()  # type: ignore[misc, no-any-return]
        return html(self)


def html(table: pd.DataFrame) -> str:
    """HTML of the rows: a table for each case, a chart, and a table over all cases, as coloured preformatted text."""
    rows = rows_of(table)
    groups = list(cases(rows))
    lines: list[Text] = []
    for group in groups if len(groups) <= MAX_CASES else ():
        lines += [*case_lines(group, WIDTH), Text()]
    chart = chart_lines(rows, WIDTH)
    return _as_html([*lines, *chart, *([Text()] if chart else []), *overview_lines(rows, WIDTH)])


def _as_html(lines: Sequence[Text]) -> str:
    console = Console(record=True, file=io.StringIO(), width=WIDTH, force_jupyter=False, no_color=False)
    console.print(Text("\n").join(lines), soft_wrap=True)
    return console.export_html(code_format=BLOCK, inline_styles=True)
