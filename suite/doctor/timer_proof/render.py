"""Renders the table of the proof as text, CSV, JSON and Markdown."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Any

from suite.doctor.timer_proof.checks import NOT_RUN, OFF, OK, SHARE, SHORT_US, SLACK_US, ProofRow, passed
from suite.results.render import number, pipe_table, plain

if TYPE_CHECKING:
    from rich.table import Table

TITLE = "# The timer"
HEADS = (
    "verdict",
    "framework",
    "work",
    "recorded us",
    "expected us",
    "ratio",
    "allowed us",
    "expected because",
    "note",
)
NUMERIC = frozenset(HEADS[3:7])
STYLES = {OK: "green", OFF: "bold red", NOT_RUN: "yellow"}


def summary(rows: Sequence[ProofRow]) -> str:
    """The number of rows by verdict: `3 rows: 1 off, 2 ok`."""
    counts = Counter(row.verdict for row in rows)
    return f"{len(rows)} rows: " + ", ".join(f"{counts[v]} {v}" for v in (OFF, NOT_RUN, OK) if counts[v])


def cells(row: ProofRow) -> tuple[str, ...]:
    """The cells of a row, in the order of HEADS."""
    allowed = "" if row.low_us is None else f"{number(row.low_us, 5)} to {number(row.high_us, 5)}"
    seen = "" if row.activities == "1 kernel" else row.activities
    return (
        row.verdict,
        row.framework,
        row.work,
        number(row.recorded_us, 5),
        number(row.expected_us, 5),
        number(row.ratio, 4),
        allowed,
        row.because,
        "; ".join(filter(None, [seen, row.note])),
    )


def rich_table(rows: Iterable[ProofRow], title: str) -> Table:
    """The table for a terminal."""
    from rich.markup import escape
    from rich.table import Table

    shown = Table(title=escape(title), title_justify="left")
    for head in HEADS:
        shown.add_column(head, justify="right" if head in NUMERIC else "left", overflow="fold")
    for row in rows:
        verdict, *rest = cells(row)
        shown.add_row(f"[{STYLES[verdict]}]{verdict}[/]", *map(escape, rest))
    return shown


def plain_line(row: ProofRow) -> str:
    """A row as one line of text, for a log."""
    verdict, framework, work, recorded, expected, ratio, allowed, because, note = cells(row)
    parts = [f"{verdict:7}", framework, work]
    parts += [f"recorded {recorded} us"] if recorded else []
    parts += [f"expected {expected} us ({because})", f"ratio {ratio}", f"allowed {allowed}"] if expected else []
    return "  ".join([*parts, note] if note else parts)


def to_csv(rows: Iterable[ProofRow]) -> str:
    """The rows as CSV, one column for each field."""
    names = [each.name for each in fields(ProofRow)]
    text = io.StringIO()
    writer = csv.DictWriter(text, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows({k: "" if v is None else v for k, v in asdict(row).items()} for row in rows)
    return text.getvalue()


def document(rows: Sequence[ProofRow], environment: Mapping[str, Any]) -> dict[str, Any]:
    """The rows, the overall verdict, and the environment record, as JSON values."""
    return {"environment": dict(environment), "passed": passed(rows), "lines": [asdict(row) for row in rows]}


def markdown(rows: Sequence[ProofRow], environment: Mapping[str, Any]) -> str:
    """The contents of `timer.md`."""
    device = plain(environment.get("device", {}).get("name", "unknown"))
    packages = ", ".join(f"{name} {version}" for name, version in environment.get("packages", {}).items())
    command = str(environment.get("command", "")).replace("`", "'")
    body = [[plain(cell) for cell in cells(row)] for row in rows]
    return "\n".join(
        [
            f"{TITLE} on {device}",
            "",
            f"Work of known cost, recorded as `compare` records. Command: `{command}`. Versions: {plain(packages)}.",
            f"Tolerance, unless stated otherwise: {100 * SHARE:g}% of an expected time above {SHORT_US:g} us, "
            f"{SLACK_US:g} us up to there. `ratio` is recorded over expected. {summary(rows)}.",
            "",
            pipe_table(list(HEADS), body, right=set(NUMERIC)),
            "",
        ]
    )
