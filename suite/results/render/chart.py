"""Draws a small bar chart of speeds under the tables of a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from suite.core.text import one_line
from suite.results.groups import cases, standing
from suite.results.render.columns import number
from suite.results.render.labels import short_dtype
from suite.results.render.layout import MIN_WIDTH, clipped
from suite.results.render.view import Comparison
from suite.results.row import Row

if TYPE_CHECKING:
    from rich.text import Text

EIGHTHS, PLAIN = " ▏▎▍▌▋▊▉█", " ####"
"""Characters for a bar's last place, from empty to full: with block characters and without."""
MARK, PLAIN_MARK = "│", "|"
"""Marks the ratio 1 in bars that end before it."""
MAX_BAR_WIDTH, MAX_BARS = 60, 24
"""The largest number of characters in a bar, and of bars."""


@dataclass(frozen=True)
class _Bar:
    name: str
    value: float
    note: str = ""
    style: str = ""


def chart_lines(rows: Iterable[Row], width: int, baseline: str = "", *, plain: bool = False) -> list[Text]:
    """Speeds as bars: for one case all implementations; for several our best one for each operation and dtype.

    Only rows that were timed and are not noisy have a bar. The chart is empty if no case has two such rows.
    `plain` draws without block characters.
    """
    groups = [group for group in cases(rows) if standing(group).comparable and standing(group).ranked]
    if not groups:
        return []
    title, bars = _case_bars(groups[0], baseline) if len(groups) == 1 else _kind_bars(groups, baseline)
    left_out = f"; the best {MAX_BARS} of {len(bars)}" if len(bars) > MAX_BARS else ""
    return _draw(f"{title}{left_out}", bars[:MAX_BARS], max(width, MIN_WIDTH), plain) if bars else []


def _case_bars(rows: Sequence[Row], baseline: str) -> tuple[str, list[_Bar]]:
    """Compares every row with the best vendor row, or with the fastest row if there is no vendor row."""
    comparison, among = Comparison(rows, baseline), standing(rows)
    timed, best = list(among.ranked), among.ranked[0]
    if all(comparison.ratio(row) for row in timed):
        reference = comparison.reference(rows[0])
        title = f"speed against {one_line(reference.implementation) if reference is not None else comparison.head}"
        values = {row.key: comparison.ratio(row) or 0.0 for row in timed}
    else:
        what = "the fastest" if among.winner is best else "the fastest that is not noisy"
        title = f"speed against {what}, {one_line(best.implementation)}"
        values = {row.key: (best.device_us or 1.0) / (row.device_us or 1.0) for row in timed}
    noisy = len(among.timed) - len(among.ranked)
    title += f"; without {noisy} noisy row{'s' if noisy > 1 else ''}" if noisy else ""
    timed.sort(key=lambda row: -values[row.key])
    return title, [
        _Bar(
            one_line(row.implementation),
            values[row.key],
            "vendor" if row.vendor else "peer" if row.peer else "",
            "bold" if row is among.winner else "",
        )
        for row in timed
    ]


def _kind_bars(groups: Sequence[Sequence[Row]], baseline: str) -> tuple[str, list[_Bar]]:
    """Compares, for each operation and dtype, our best implementation with its reference on the longest case."""
    kinds: dict[tuple[str, str], tuple[float, _Bar]] = {}
    for group in groups:
        comparison = Comparison(group, baseline)
        reference = comparison.reference(group[0])
        best = standing(group).best(lambda row, reference=reference: row.is_ours and row is not reference)  # type: ignore[misc]
        ratio = comparison.ratio(best) if best is not None else None
        if best is None or ratio is None or reference is None:
            continue
        kind = group[0].operation, short_dtype(group[0])
        bar = _Bar(one_line(" ".join(kind)), ratio, one_line(f"{best.implementation} vs {reference.implementation}"))
        longest = kinds.get(kind)
        if longest is None or (reference.device_us or 0.0) > longest[0]:
            kinds[kind] = reference.device_us or 0.0, bar
    what = baseline or "the best vendor"
    title = f"our best vs {one_line(what)}, largest ranked case of each operation and dtype"
    return title, [bar for _, bar in kinds.values()]


def _draw(title: str, bars: Sequence[_Bar], width: int, plain: bool) -> list[Text]:
    from rich.text import Text

    names = [clipped(bar.name, max(20, width // 3)) for bar in bars]
    numbers = [number(bar.value, 3) for bar in bars]
    name_width, digits = max(map(len, names)), max(map(len, numbers))
    notes = max(len(bar.note) for bar in bars)
    bar_width = min(MAX_BAR_WIDTH, width - name_width - digits - notes - (5 if notes else 3))
    shown = bar_width >= 8 or not notes
    bar_width = bar_width if shown else min(MAX_BAR_WIDTH, width - name_width - digits - 3)
    scale = bar_width / max(1.0, *(bar.value for bar in bars))
    lines = [Text(clipped(title, width), style="bold")]
    for bar, name, text in zip(bars, names, numbers, strict=True):
        drawn = _bar(bar.value * scale, round(scale), plain).ljust(bar_width)
        note = f"  {bar.note}" if bar.note and shown else ""
        lines.append(Text(f"{name.ljust(name_width)}  {drawn} {text.rjust(digits)}{note}", style=bar.style))
    return lines


def _bar(length: float, one: int, plain: bool) -> str:
    """A bar of `length` characters, with a mark at the ratio 1, position `one`, if the bar ends before it."""
    steps = PLAIN if plain else EIGHTHS
    whole, part = divmod(max(1, round(length * (len(steps) - 1))), len(steps) - 1)
    text = steps[-1] * whole + (steps[part] if part else "")
    return text if len(text) >= one else text.ljust(one - 1) + (PLAIN_MARK if plain else MARK)
