"""From the table to something a person reads: rich on a terminal, Markdown in a file."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from suite.table import FAILURES, Row, frame, from_frame

if TYPE_CHECKING:
    import pandas as pd
    from rich.table import Table


@dataclass(frozen=True)
class Shown:
    """A column that people are shown: the field of `Row`, its head with the unit, and a format."""

    field: str
    head: str
    digits: int = 3


SHOWN = (
    Shown("device_us", "device us", 4),
    Shown("interval", "+- %", 2),
    Shown("vs_best", "vs best vendor"),
    Shown("of_limit", "of limit"),
    Shown("gb_per_s", "GB/s", 4),
    Shown("tflops", "TFLOP/s", 4),
    Shown("latency_us", "latency us", 4),
    Shown("dispatch_us", "dispatch us", 3),
    Shown("compile_s", "first call s", 3),
    Shown("joules", "joules", 3),
    Shown("error_ratio", "error / bound", 3),
    Shown("max_ulp", "max ulp", 3),
)
STYLES = {
    "ok": "green",
    "wrong": "bold red",
    "error": "red",
    "timeout": "red",
    "unavailable": "yellow",
    "unsupported": "dim",
}


def number(value: Any, digits: int) -> str:
    """`digits` significant digits without an exponent for what fits a column; empty for a number that is not there."""
    if value is None or value == "" or (isinstance(value, float) and math.isnan(value)):
        return ""
    value = float(value)
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    if value == 0:
        return "0"
    magnitude = math.floor(math.log10(abs(value)))
    if not -4 <= magnitude < 9:
        return f"{value:.{max(0, digits - 1)}e}"
    return f"{value:,.{max(0, digits - 1 - magnitude)}f}"


def fastest(rows: Sequence[Row]) -> Row | None:
    """The fastest agreeing row of a case; None when fewer than two were timed, or by different recorders."""
    timed = [row for row in rows if row.status == "ok" and row.device_us is not None]
    if len(timed) < 2 or len({row.recorder for row in timed}) != 1:
        return None
    return min(timed, key=lambda row: row.device_us or math.inf)


def cases(rows: Iterable[Row]) -> list[list[Row]]:
    """Rows grouped by case, in order."""
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(row.key[:-1], []).append(row)
    return list(groups.values())


def _cells(row: Row) -> dict[str, str]:
    cells = {shown.field: number(getattr(row, shown.field, None), shown.digits) for shown in SHOWN}
    if row.device_us and row.device_us_low is not None and row.device_us_high is not None:
        cells["interval"] = number(50 * (row.device_us_high - row.device_us_low) / row.device_us, 2)
    return cells


def _used(rows: Sequence[Row]) -> list[Shown]:
    """Only the columns in which some row has a number."""
    return [shown for shown in SHOWN if any(_cells(row)[shown.field] for row in rows)]


def rich_table(rows: Sequence[Row]) -> Table:
    """One case as a table: its fastest agreeing line marked, reasons below the line that they explain."""
    from rich.markup import escape
    from rich.table import Table

    first, best, used = rows[0], fastest(rows), _used(rows)
    title = f"{first.operation} {first.case} {first.dtype} {first.precision}"
    table = Table(title=escape(title), title_justify="left", title_style="bold", header_style="bold")
    table.add_column("implementation", no_wrap=True)
    table.add_column("mode")
    table.add_column("status")
    for shown in used:
        table.add_column(shown.head, justify="right")
    reasons = any(row.reason for row in rows)
    if reasons:
        table.add_column("reason", overflow="fold")
    for row in rows:
        cells = _cells(row)
        mark = " *" if row is best else ""
        line = [escape(row.implementation) + mark, row.mode, f"[{STYLES[row.status]}]{row.status}[/]"]
        line += [cells[shown.field] for shown in used] + ([escape(row.reason)] if reasons else [])
        table.add_row(*line, style="bold" if row is best else None)
    return table


def plain_lines(rows: Sequence[Row]) -> list[str]:
    """One case as lines of text, for a log."""
    best = fastest(rows)
    lines = []
    for row in rows:
        cells = _cells(row)
        facts = [f"{shown.head} {cells[shown.field]}" for shown in SHOWN if cells[shown.field]]
        tail = f"  {row.reason}" if row.reason else ""
        head = f"{row.operation} {row.case} {row.dtype} {row.precision}"
        name = f"{row.implementation}{' *' if row is best else ''}"
        lines.append(f"{head}  {name}  {row.mode}  {row.status}  {'; '.join(facts)}{tail}")
    return lines


def markdown(data: pd.DataFrame, environment: dict[str, Any]) -> str:
    """A results table as Markdown: a pure function of the CSV and the environment record."""
    rows = from_frame(data)
    title = rows[0].operation if rows else "empty"
    lines = [f"# {title} on {_plain(environment.get('device', {}).get('name', 'unknown'))}", ""]
    lines += [_conditions(rows, environment), ""]
    for group in cases(rows):
        first, best, used = group[0], fastest(group), _used(group)
        lines += [f"## {_plain(f'{first.case} {first.dtype} {first.precision}')}", ""]
        reasons = any(row.reason for row in group)
        heads = ["implementation", "mode", "status", *(shown.head for shown in used)] + (["reason"] if reasons else [])
        body = []
        for row in group:
            cells = _cells(row)
            name = f"**{_plain(row.implementation)}**" if row is best else _plain(row.implementation)
            line = [name, row.mode, row.status, *(cells[shown.field] for shown in used)]
            body.append(line + ([_plain(row.reason)] if reasons else []))
        lines += [_pipe_table(heads, body, right={shown.head for shown in used}), ""]
    return "\n".join(lines)


def _conditions(rows: Sequence[Row], environment: dict[str, Any]) -> str:
    recorders = sorted({row.recorder for row in rows if row.recorder})
    caches = sorted({row.cache for row in rows if row.cache})
    command = str(environment.get("command", "")).replace("`", "'")
    parts = [f"Command: `{command}`."]
    parts.append(f"Versions: {_plain(', '.join(f'{k} {v}' for k, v in environment.get('packages', {}).items()))}.")
    if recorders:
        state = ", ".join(caches) or "as it is"
        parts.append(f"Recorder: {', '.join(recorders)}; L2 cache: {state}; medians with 95% intervals.")
    parts.append("The fastest agreeing line of each case is bold; `vs best vendor` above 1 is faster than the vendor.")
    return " ".join(parts)


def _pipe_table(heads: list[str], body: list[list[str]], right: set[str]) -> str:
    from tabulate import tabulate

    align = ["right" if head in right else "left" for head in heads]
    return tabulate(body, headers=heads, tablefmt="pipe", disable_numparse=True, colalign=align)


def _plain(text: Any) -> str:
    """Text that cannot become markup in a Markdown table."""
    escaped = " ".join(str(text).split())
    for character in "\\`*_|<>[]":
        escaped = escaped.replace(character, {"<": "&lt;", ">": "&gt;"}.get(character, "\\" + character))
    return escaped


def summary(rows: Sequence[Row]) -> str:
    """`40 rows: 36 ok, 4 unsupported`."""
    counts = frame(rows)["status"].value_counts()
    return f"{len(rows)} rows: " + ", ".join(f"{count} {status}" for status, count in counts.items())


def exit_status(rows: Iterable[Row]) -> int:
    """0 when all that could run agrees, 1 when any row is wrong, error or timeout."""
    return 1 if any(row.status in FAILURES for row in rows) else 0
