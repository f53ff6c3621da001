"""Renders the measured peaks as tables and as lines of text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from suite import hardware
from suite.hardware.measured_peaks import MEMORY, Reading, fastest
from suite.results.render import number

if TYPE_CHECKING:
    from rich.table import Table

HEADS = ("ceiling", "unit", "measured", "spread", "datasheet", "share", "by")
READING_HEADS = (
    "ceiling",
    "reading",
    "device us",
    "95% interval",
    "rate",
    "unit",
    "samples",
    "SM clock",
    "clocks held by",
)
NUMERIC = frozenset(HEADS[2:6]) | frozenset(READING_HEADS[2:5]) | {"samples", "SM clock"}


def peak_rows(contents: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """One row for each peak: measured, datasheet, and the reading it comes from, or why it was not measured."""
    cited = hardware.peaks(contents["device"])
    found = [_peak_row(MEMORY, contents["gb_per_s"], contents, cited.gb_per_s if cited else None)]
    for name, rate in contents["tflops"].items():
        found.append(_peak_row(name, rate, contents, cited.tflops.get(name) if cited else None))
    found += [(name, UNITS[1], "", "", "", "", reason) for name, reason in contents["not_measured"].items()]
    return found


def _peak_row(ceiling: str, measured: float, contents: Mapping[str, Any], cited: float | None) -> tuple[str, ...]:
    best = fastest(_readings(contents), ceiling)
    by = "" if best is None else best.name if best.rate >= measured else "fp32, in which it can be computed"
    share = "" if cited is None else f"{100 * measured / cited:.0f}%"
    spread = "" if best is None or best.spread is None else f"{100 * best.spread:.1f}%"
    return ceiling, _unit(ceiling), number(measured, 4), spread, number(cited, 4), share, by


def reading_rows(contents: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """One row for each reading."""
    return [
        (
            r.ceiling,
            r.name,
            number(r.device_us, 5),
            "" if r.device_us_low is None else f"{number(r.device_us_low, 5)} to {number(r.device_us_high, 5)}",
            number(r.rate, 4),
            _unit(r.ceiling),
            str(r.samples),
            number(r.clock_sm_mhz, 4),
            r.clock_reasons,
        )
        for r in _readings(contents)
    ]


def _readings(contents: Mapping[str, Any]) -> list[Reading]:
    known = {field.name for field in fields(Reading)}
    return [Reading(**{k: v for k, v in reading.items() if k in known}) for reading in contents["readings"]]


UNITS = ("GB/s", "TFLOP/s")


def _unit(ceiling: str) -> str:
    return UNITS[0] if ceiling == MEMORY else UNITS[1]


def tables(contents: Mapping[str, Any]) -> list[Table]:
    """The tables of the peaks and of the readings, for a terminal. `contents` is that of `limits.json`."""
    from rich.markup import escape
    from rich.table import Table

    shown = []
    for title, heads, body in (
        (f"Measured peaks of {contents['device']}", HEADS, peak_rows(contents)),
        ("Readings", READING_HEADS, reading_rows(contents)),
    ):
        table = Table(title=escape(title), title_justify="left")
        for head in heads:
            table.add_column(head, justify="right" if head in NUMERIC else "left", overflow="fold")
        for row in body:
            table.add_row(*map(escape, row))
        shown.append(table)
    return shown


def plain_lines(contents: Mapping[str, Any]) -> list[str]:
    """The peaks and readings as lines of text, for a log."""
    lines = []
    for ceiling, name, us, interval, rate, unit, samples, clock, held in reading_rows(contents):
        clocks = f", SM clock {clock} MHz, held by {held or 'nothing'}" if clock else ""
        lines.append(f"{ceiling}, {name}: {us} us ({interval}), {rate} {unit}, {samples} samples{clocks}")
    for ceiling, unit, measured, spread, cited, share, by in peak_rows(contents):
        cite = f", two passes within {spread}" if spread else ""
        cite += f", datasheet {cited}: {share}" if cited else ""
        lines.append(f"{ceiling}: {measured} {unit} ({by}){cite}" if measured else f"{ceiling}: not measured: {by}")
    return lines
