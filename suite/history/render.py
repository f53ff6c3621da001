"""Renders the history as text, with a table for each case and a sparkline for each implementation, and as a CSV."""

from __future__ import annotations

import csv
import io
import statistics
from collections.abc import Sequence
from typing import TYPE_CHECKING

from suite.core.text import one_line
from suite.history.load import CaseHistory, Line, Point
from suite.results.csv_file import cell
from suite.results.render import number
from suite.results.render.labels import short_case, short_dtype
from suite.results.render.layout import Field, table, wrapped

if TYPE_CHECKING:
    from rich.text import Text

STEPS, PLAIN_STEPS, GAP = "▁▂▃▄▅▆▇", "_.-=+*#", " "
"""Characters of a sparkline from low to high, with block characters and without; character of a run without a value."""
SPARKLINE_RUNS = 16
"""The number of runs in a sparkline, which shows the last ones."""
MIN_RANGE = 0.05
"""The smallest relative range of a sparkline's scale to either side of the median, so that noise looks flat."""
COLUMNS = (
    *("run", "date_utc", "commit", "operation", "case", "dtype", "precision", "implementation", "device"),
    *("recorder", "cache", "samples", "noisy", "device_us", "device_us_low", "device_us_high"),
    *("vs_best", "vs_best_low", "vs_best_high"),
)


def lines_of(cases: Sequence[CaseHistory], width: int, *, plain: bool = False) -> list[Text]:
    """The tables, at most `width` wide. `plain` draws without block characters."""
    from rich.text import Text

    several = len({each.device for each in cases}) > 1
    lines: list[Text] = []
    for each in cases:
        lines += [Text(line, style="bold") for line in wrapped(_title(each, several), width, indent="  ")]
        lines += [*table(_fields(each, plain), width), Text()]
    return lines


def _title(each: CaseHistory, several: bool) -> str:
    row = each.lines[0].points[0].row
    where = f" on {each.device}" if several else ""
    how = f" ({each.measured})" if each.measured else ""
    dates = [run.date[:10] for run in each.runs if run.date]
    when = f", {dates[0]} to {dates[-1]}" if dates else ""
    return one_line(
        f"{each.operation} {short_case(each.case)} {short_dtype(row)}{where}{how}: {len(each.runs)} runs{when}"
    )


def _fields(each: CaseHistory, plain: bool) -> list[Field]:
    lines = each.lines
    found = [Field("implementation", [one_line(line.implementation) for line in lines], False)]
    found.append(Field("runs", [str(len(line.points)) for line in lines]))
    if any(line.ratios for line in lines):
        found += [
            Field("vs best vendor", [_sparkline(each, line, "ratio", plain) for line in lines], False),
            Field("first", [number(line.ratios[0], 3) if line.ratios else "" for line in lines]),
            Field("last", [number(line.ratios[-1], 3) if line.ratios else "" for line in lines]),
        ]
    found += [
        Field("device us", [_sparkline(each, line, "time", plain) for line in lines], False),
        Field("last us", [number(line.times[-1], 4) if line.times else "noisy" for line in lines]),
        Field("change", [_change(line.times) for line in lines]),
    ]
    return found


def _sparkline(each: CaseHistory, line: Line, what: str, plain: bool) -> str:
    return sparkline([_value(line.at(run), what) for run in each.runs], PLAIN_STEPS if plain else STEPS)


def _value(point: Point | None, what: str) -> float | None:
    if point is None or what == "ratio":
        return None if point is None else point.ratio
    return None if point.row.noisy else point.row.device_us


def sparkline(values: Sequence[float | None], steps: str = STEPS) -> str:
    """A character for each of the last `SPARKLINE_RUNS` values, on a scale from the smallest to the largest of them."""
    shown = values[-SPARKLINE_RUNS:]
    known = [value for value in shown if value is not None]
    if not known:
        return ""
    middle = statistics.median(known)
    low, high = min(*known, middle * (1 - MIN_RANGE)), max(*known, middle * (1 + MIN_RANGE))
    scale = (len(steps) - 1) / (high - low) if high > low else 0.0
    return "".join(GAP if value is None else steps[round((value - low) * scale)] for value in shown).rstrip()


def _change(times: Sequence[float]) -> str:
    """The last time relative to the median of the earlier ones, such as `+1.2%`; empty for a single time."""
    if len(times) < 2:
        return ""
    return f"{100 * (times[-1] / statistics.median(times[:-1]) - 1):+.1f}%"


def is_table(contents: bytes) -> bool:
    """True for the contents of a file that `to_csv` made."""
    return contents.startswith(",".join(COLUMNS[:4]).encode())


def to_csv(cases: Sequence[CaseHistory]) -> str:
    """A CSV with one record for each run of each line, and all digits of the times."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for each in cases:
        for line in each.lines:
            for point in line.points:
                known = [point.run.name, point.run.date, point.run.commit]
                values = [getattr(point.row, name) for name in COLUMNS[len(known) :]]
                writer.writerow([cell(value) for value in (*known, *values)])
    return text.getvalue()
