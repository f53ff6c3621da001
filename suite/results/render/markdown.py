"""Renders a results table as Markdown. Every text is escaped, so that no cell can become markup or HTML."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from suite.core.text import one_line
from suite.results.groups import cases
from suite.results.order import severity
from suite.results.render.columns import CaseTable
from suite.results.render.summary import crossovers
from suite.results.row import Row

ESCAPES = str.maketrans(
    {**{character: "\\" + character for character in "\\`*_|[]~$"}, "<": "&lt;", ">": "&gt;", "&": "&amp;"}
)
"""Escapes for the characters that Markdown, with the extensions of code hosts, reads as markup or HTML."""


def plain(text: Any) -> str:
    """`text` on one line and escaped, so that it cannot become markup in a Markdown table."""
    return one_line(text).translate(ESCAPES)


def pipe_table(heads: list[str], body: list[list[str]], right: set[str]) -> str:
    """A Markdown table. Its cells must be escaped. The columns whose heads are in `right` are right-aligned."""
    from tabulate import tabulate

    align = ["right" if head in right else "left" for head in heads]
    return tabulate(body, headers=heads, tablefmt="pipe", disable_numparse=True, colalign=align)


def markdown(rows: Sequence[Row], environment: Mapping[str, Any]) -> str:
    """The rows of one operation, with a table for each case. Depends on the rows and the environment record alone."""
    title = rows[0].operation if rows else "empty"
    parts = [f"# {title} on {plain(environment.get('device', {}).get('name', 'unknown'))}", ""]
    parts += [_conditions(rows, environment), ""]
    for group in cases(rows):
        first = group[0]
        parts += [f"## {plain(f'{first.case} {first.dtype} {first.precision}')}", "", _case_table(group), ""]
    if found := crossovers(rows):
        parts += ["## Where the GPU starts to win", "", *(f"- {plain(text)}" for text in found), ""]
    return "\n".join(parts)


def _case_table(rows: Sequence[Row]) -> str:
    view = CaseTable.from_rows(rows)
    texts = {head: each for head, each in (("kernels run", view.kernels), ("reason", view.notes)) if any(each)}
    numeric = [column.head for column in view.columns]
    body = []
    lines = zip(rows, view.cells, *texts.values(), strict=True)
    for row, cells, *row_text in sorted(lines, key=lambda line: severity(line[0])):
        name = plain(row.implementation)
        entries = [f"**{name}**" if row is view.fastest else name, str(row.execution), str(row.status)]
        body.append([*entries, *(plain(cells[column.field]) for column in view.columns), *map(plain, row_text)])
    table = pipe_table(["implementation", "mode", "status", *numeric, *texts], body, right=set(numeric))
    return "\n".join([table, *(f"\n{plain(remark)}." for remark in view.remarks)])


def _conditions(rows: Sequence[Row], environment: Mapping[str, Any]) -> str:
    """The conditions that hold for all tables: command, versions, recorder and cache."""
    recorders = sorted({row.recorder for row in rows if row.recorder})
    caches = sorted({row.cache for row in rows if row.cache})
    command = one_line(environment.get("command", "")).replace("`", "'")
    versions = ", ".join(f"{name} {version}" for name, version in environment.get("packages", {}).items())
    parts = [f"Command: `{command}`.", f"Versions: {plain(versions)}."]
    if recorders:
        state = ", ".join(caches) or "as it is"
        parts.append(f"Recorder: {plain(', '.join(recorders))}; L2 cache: {plain(state)}; medians with 95% intervals.")
    parts.append("The fastest agreeing row of each case is bold; `vs best vendor` above 1 is faster than the vendor.")
    return " ".join(parts)
