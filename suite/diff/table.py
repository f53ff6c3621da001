"""Renders a comparison for a terminal, a file or a pipe: a table of at most eight columns for each case."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from suite.core.text import one_line
from suite.diff.change import Change, Diff, Evidence, Verdict
from suite.diff.interval import Estimate, as_ratio
from suite.diff.render import shown, unmatched
from suite.results.render import number
from suite.results.render.labels import case_title
from suite.results.render.layout import Field, table, wrapped
from suite.results.render.notes import Notes

if TYPE_CHECKING:
    from rich.text import Text

STYLES = {
    Verdict.BROKEN: "bold red",
    Verdict.SLOWER: "red",
    Verdict.AMBIGUOUS: "yellow",
    Verdict.FASTER: "green",
    Verdict.FIXED: "bold green",
}


def lines(found: Diff, width: int) -> list[Text]:
    """The tables, at most `width` wide. The worst case, and in it the worst row, come last, next to the summary."""
    from rich.text import Text

    above = [": ".join((side, f"{case}: {names}")) for side, case, names in unmatched(found)]
    result = [Text(line, "dim") for text in above for line in wrapped(text, width, indent="  ")]
    groups: dict[tuple[str, ...], list[Change]] = {}
    for change in shown(found):  # the worst first
        groups.setdefault(change.base.case_key, []).append(change)
    for changes in reversed(groups.values()):
        result += [*_case(found, changes[::-1], width), Text()]
    return result[:-1] if groups else result


def _case(found: Diff, changes: Sequence[Change], width: int) -> list[Text]:
    from rich.text import Text

    row, notes = changes[0].base, Notes()
    title = one_line(f"{case_title(row)}; speed of NEW over BASE")
    fields = [
        Field("verdict", [change.verdict for change in changes], False),
        Field("ratio", [_ratio(change.ratio) for change in changes]),
        Field("95% interval", [_interval(change.ratio) for change in changes]),
        Field("base us", [number(change.base.device_us, 4) for change in changes]),
        Field("new us", [number(change.new.device_us, 4) for change in changes]),
        Field("judged by", [_evidence(change) for change in changes], False),
        Field("note", [notes.numbers([one_line(note) for note in change.notes]) for change in changes], False),
    ]
    names = Field("implementation", [found.name(change.base) for change in changes], False)
    styles = [STYLES.get(change.verdict, "") for change in changes]
    heading = [Text(line, style="bold") for line in wrapped(title, width, indent="  ")]
    rows = table([names, *(field for field in fields if any(field.cells))], width, styles)
    return [*heading, *rows, *map(Text, notes.lines(width))]


def _ratio(ratio: Estimate | None) -> str:
    return "" if ratio is None else number(as_ratio(ratio.value), 3)


def _interval(ratio: Estimate | None) -> str:
    if ratio is None or not (math.isfinite(ratio.down) and math.isfinite(ratio.up)):
        return ""
    return f"{number(as_ratio(ratio.low), 3)} to {number(as_ratio(ratio.high), 3)}"


def _evidence(change: Change) -> str:
    """The times, the ratios to a vendor's row, or both."""
    names = {Evidence.TIME: "time", Evidence.RANKED: f"vs {change.control}", Evidence.BOTH: "both"}
    return one_line(names.get(change.evidence, ""))
