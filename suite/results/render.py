"""From the table to something a person reads: rich on a terminal, Markdown in a file."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from suite.core.text import one_line
from suite.results.row import FAILURES, Row, frame, from_frame

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
    Shown("to_device_us", "to device us", 4),
    Shown("to_device_pinned_us", "pinned", 4),
    Shown("to_host_us", "to host us", 4),
    Shown("to_host_pinned_us", "pinned", 4),
    Shown("program_us", "program us", 4),
    Shown("program_pinned_us", "pinned", 4),
    Shown("first_call_s", "first call s", 3),
    Shown("compile_s", "compile s", 3),
    Shown("compile_warm_s", "cached s", 3),
    Shown("joules", "joules", 3),
    Shown("gflop_per_joule", "GFLOP/J", 3),
    Shown("peak_bytes", "extra bytes", 4),
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


ESCAPES = str.maketrans(
    {**{character: "\\" + character for character in "\\`*_|[]~$"}, "<": "&lt;", ">": "&gt;", "&": "&amp;"}
)
"""What Markdown, with the extensions that code hosts add, would take for markup or for HTML."""


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
    """The fastest agreeing row of a case; None when fewer than two were timed there, or by different recorders."""
    timed = [r for r in rows if r.status == "ok" and r.device_us is not None and r.device == rows[0].device]
    if len(timed) < 2 or len({row.recorder for row in timed}) != 1:
        return None
    return min(timed, key=lambda row: row.device_us or math.inf)


def cases(rows: Iterable[Row]) -> list[list[Row]]:
    """Rows grouped by case, in order."""
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(row.case_key, []).append(row)
    return list(groups.values())


def _notes(row: Row) -> str:
    """What is said about a line in words."""
    return one_line("; ".join(note for note in (row.reason, row.flags) if note))


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
    table = Table(title=escape(one_line(title)), title_justify="left", title_style="bold", header_style="bold")
    table.add_column("implementation", no_wrap=True)
    table.add_column("mode")
    table.add_column("status")
    for shown in used:
        table.add_column(shown.head, justify="right")
    reasons = any(map(_notes, rows))
    if reasons:
        table.add_column("reason", overflow="fold")
    for row in rows:
        cells = _cells(row)
        mark = " *" if row is best else ""
        line = [
            escape(one_line(row.implementation)) + mark,
            escape(one_line(row.mode)),
            f"[{STYLES[row.status]}]{row.status}[/]",
        ]
        line += [cells[shown.field] for shown in used] + ([escape(_notes(row))] if reasons else [])
        table.add_row(*line, style="bold" if row is best else None)
    return table


def plain_lines(rows: Sequence[Row]) -> list[str]:
    """One case as lines of text, for a log."""
    best = fastest(rows)
    lines = []
    for row in rows:
        cells = _cells(row)
        facts = [f"{shown.head} {cells[shown.field]}" for shown in SHOWN if cells[shown.field]]
        tail = f"  {_notes(row)}" if _notes(row) else ""
        head = f"{row.operation} {row.case} {row.dtype} {row.precision}"
        name = f"{one_line(row.implementation)}{' *' if row is best else ''}"
        lines.append(f"{head}  {name}  {row.mode}  {row.status}  {'; '.join(facts)}{tail}")
    return lines


def markdown(data: pd.DataFrame, environment: dict[str, Any]) -> str:
    """A results table as Markdown: a pure function of the CSV and the environment record."""
    rows = from_frame(data)
    title = rows[0].operation if rows else "empty"
    lines = [f"# {title} on {plain(environment.get('device', {}).get('name', 'unknown'))}", ""]
    lines += [_conditions(rows, environment), ""]
    for group in cases(rows):
        first, best, used = group[0], fastest(group), _used(group)
        lines += [f"## {plain(f'{first.case} {first.dtype} {first.precision}')}", ""]
        reasons = any(map(_notes, group))
        heads = ["implementation", "mode", "status", *(shown.head for shown in used)] + (["reason"] if reasons else [])
        body = []
        for row in group:
            cells = _cells(row)
            name = f"**{plain(row.implementation)}**" if row is best else plain(row.implementation)
            line = [name, plain(row.mode), row.status, *(cells[shown.field] for shown in used)]
            body.append(line + ([plain(_notes(row))] if reasons else []))
        lines += [pipe_table(heads, body, right={shown.head for shown in used}), ""]
    wins = crossovers(rows)
    if wins:
        lines += ["## Where the GPU starts to win", "", *(f"- {plain(line)}" for line in wins), ""]
    return "\n".join(lines)


def crossovers(rows: Iterable[Row]) -> list[str]:
    """From which size on the best GPU line beats the best CPU line: a line for each operation, dtype, precision.

    By latency, the whole call seen from the host; then by the whole program, inputs to the device and result back,
    where transfers were timed. Empty for rows of one kind of device.
    """
    sweeps: dict[tuple[str, str, str], list[list[Row]]] = {}
    for group in cases(rows):
        timed = [row for row in group if row.status == "ok" and row.latency_us is not None]
        if len({row.device == "cpu" for row in timed}) == 2:
            sweeps.setdefault((timed[0].operation, timed[0].dtype, timed[0].precision), []).append(timed)
    lines = []
    for names, groups in sweeps.items():
        found = [f"on data that is there already: {_wins_from(groups, 'latency_us')}"]
        if any(row.program_us is not None for group in groups for row in group):
            found.append(f"with transfers through pageable memory: {_wins_from(groups, 'program_us')}")
            found.append(f"through pinned memory: {_wins_from(groups, 'program_pinned_us')}")
        lines.append(f"{' '.join(names)}: the GPU is faster, {'; '.join(found)}")
    return lines


def _wins_from(groups: Sequence[Sequence[Row]], column: str) -> str:
    """`from N=65536 on`: the first size from which the GPU stays ahead by `column`."""
    first = None
    for group in groups:
        known = [(getattr(row, column), row.device == "cpu") for row in group if getattr(row, column) is not None]
        gpu_wins = bool(known) and not min(known)[1]
        first = (first or group[0].case) if gpu_wins else None
    return f"from {first} on" if first else "at none of these sizes"


def _conditions(rows: Sequence[Row], environment: dict[str, Any]) -> str:
    recorders = sorted({row.recorder for row in rows if row.recorder})
    caches = sorted({row.cache for row in rows if row.cache})
    command = one_line(environment.get("command", "")).replace("`", "'")
    parts = [f"Command: `{command}`."]
    parts.append(f"Versions: {plain(', '.join(f'{k} {v}' for k, v in environment.get('packages', {}).items()))}.")
    if recorders:
        state = ", ".join(caches) or "as it is"
        parts.append(f"Recorder: {plain(', '.join(recorders))}; L2 cache: {plain(state)}; medians with 95% intervals.")
    parts.append("The fastest agreeing line of each case is bold; `vs best vendor` above 1 is faster than the vendor.")
    return " ".join(parts)


def pipe_table(heads: list[str], body: list[list[str]], right: set[str]) -> str:
    from tabulate import tabulate

    align = ["right" if head in right else "left" for head in heads]
    return tabulate(body, headers=heads, tablefmt="pipe", disable_numparse=True, colalign=align)


def plain(text: Any) -> str:
    """Text that cannot become markup in a Markdown table."""
    return one_line(text).translate(ESCAPES)


def summary(rows: Sequence[Row]) -> str:
    """`40 rows: 36 ok, 4 unsupported`."""
    counts = frame(rows)["status"].value_counts()
    return f"{len(rows)} rows: " + ", ".join(f"{count} {status}" for status, count in counts.items())


def exit_status(rows: Iterable[Row]) -> int:
    """0 when all that could run agrees; 1 when any row is wrong, error or timeout, or faster than the device can be."""
    return 1 if any(row.status in FAILURES or row.suspect for row in rows) else 0
