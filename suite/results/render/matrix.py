"""Summarizes a run of several operations: a matrix of operations by frameworks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from suite.core.text import one_line
from suite.results.groups import cases
from suite.results.render.columns import number
from suite.results.render.layout import Field, table, wrapped
from suite.results.render.view import Comparison
from suite.results.row import Row, Status

if TYPE_CHECKING:
    from rich.text import Text

UNSUPPORTED = (Status.UNSUPPORTED, Status.UNAVAILABLE)
ABOUT = (
    "operations by framework: rows that are ok/wrong/unsupported (errors and timeouts count as wrong, unavailable rows "
    "as unsupported)"
)


def matrix_lines(rows: Iterable[Row], width: int, baseline: str = "") -> list[Text]:
    """Counts of rows for each operation and framework, and the best ratio below them. Empty for a single operation."""
    from rich.text import Text

    rows = list(rows)
    operations = list(dict.fromkeys(row.operation for row in rows))
    if len(operations) < 2:
        return []
    ratios = _best_ratios(rows, baseline)
    head = Comparison(rows, baseline).head
    frameworks = list(dict.fromkeys(map(_framework, rows)))
    names: list[str] = []
    cells: dict[str, list[str]] = {framework: [] for framework in frameworks}
    for operation in operations:
        own = [row for row in rows if row.operation == operation]
        timed = any((operation, framework) in ratios for framework in frameworks)
        names += [one_line(operation), *([""] if timed else [])]
        for framework in frameworks:
            cells[framework].append(_counts([row for row in own if _framework(row) == framework]))
            if timed:
                cells[framework].append(number(ratios.get((operation, framework)), 3))
    about = f"{ABOUT}; below, the best ratio {head}" if ratios else ABOUT
    fields = [Field(one_line(framework), column) for framework, column in cells.items()]
    title = [Text(line, style="bold") for line in wrapped(about, width, indent="  ")]
    return [*title, *table([Field("operation", names, False), *fields], width)]


def _framework(row: Row) -> str:
    return row.implementation.partition("/")[0]


def _counts(rows: Sequence[Row]) -> str:
    """The numbers of rows that are ok, wrong and unsupported: `24/1/12`. Empty without rows."""
    if not rows:
        return ""
    wrong = sum(row.failed for row in rows)
    unsupported = sum(row.status in UNSUPPORTED for row in rows)
    return f"{len(rows) - wrong - unsupported}/{wrong}/{unsupported}"


def _best_ratios(rows: Iterable[Row], baseline: str) -> dict[tuple[str, str], float]:
    """The highest ratio to the reference, over all cases, by operation and framework."""
    found: dict[tuple[str, str], float] = {}
    for group in cases(rows):
        comparison = Comparison(group, baseline)
        for row in group:
            ratio = comparison.ratio(row)
            if ratio is not None:
                key = row.operation, _framework(row)
                found[key] = max(found.get(key, 0.0), ratio)
    return found
