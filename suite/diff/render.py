"""Renders a comparison as Markdown for a pull request, as JSON for programs, and as single lines for logs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from suite.core.text import one_line
from suite.diff.change import Change, Diff, Evidence, Verdict, case_name
from suite.diff.interval import as_ratio
from suite.results.render import number, pipe_table, plain
from suite.results.row import MEASURED, Row

HEADS = ("verdict", "ratio", "95% interval", "base us", "new us", "case", "implementation", "judged by", "notes")
NUMERIC = frozenset(HEADS[1:5])
IDENTITY = ("operation", "case", "dtype", "precision", "implementation", "device")
CONDITIONS = (
    ("git", "commit"),
    ("python",),
    ("packages",),
    ("toolkits",),
    ("device", "driver"),
    ("device", "power_limit_w"),
    ("host", "name"),
    ("host", "threads"),
)
"""Entries of the environment record that may change the speed of the same code."""


def summary(found: Diff) -> str:
    """The number of rows by verdict: `40 rows in both: 1 SLOWER, 39 SAME; 2 only in BASE; threshold 3%`."""
    counts = ", ".join(f"{count} {verdict}" for verdict, count in found.counts.items() if count)
    alone = [f"{len(found.only_in_base)} only in BASE"] if found.only_in_base else []
    alone += [f"{len(found.only_in_new)} only in NEW"] if found.only_in_new else []
    return "; ".join([f"{len(found.changes)} rows in both: {counts}", *alone, f"threshold {100 * found.threshold:g}%"])


def remarks(found: Diff) -> list[str]:
    """Remarks on the whole comparison: an unknown device, and other changes between the runs."""
    sides = (("BASE", found.base), ("NEW", found.new))
    unknown = [name for name, side in sides if side.environment is None]
    if unknown:
        return [f"the device of {' and '.join(unknown)} is not known: no environment.json beside its tables"]
    changed = changed_conditions(*(side.environment or {} for _, side in sides))
    return [f"also changed: {one_line(', '.join(changed))}"] if changed else []


def changed_conditions(base: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """Differences of two environment records that may change the speed of the same code: `torch 2.11 -> 2.13`."""
    then, now = _conditions(base), _conditions(new)
    return [
        f"{name} {then.get(name, 'none')} -> {now.get(name, 'none')}"
        for name in {**then, **now}
        if then.get(name) != now.get(name)
    ]


def _conditions(environment: dict[str, Any]) -> dict[str, str]:
    flat: dict[str, str] = {}
    for path in CONDITIONS:
        value: Any = environment
        for name in path:
            value = value.get(name) if isinstance(value, dict) else None
        if isinstance(value, dict):
            flat |= {str(name): str(entry) for name, entry in value.items()}
        elif value is not None:
            flat[" ".join(path)] = str(value)
    return flat


def plain_line(found: Diff, change: Change) -> str:
    """A change on one line, for a log."""
    verdict, ratio, interval, then, now, case, implementation, evidence, notes = _cells(found, change)
    parts = [f"{verdict:9}", case, implementation]
    if change.ratio is not None:
        parts += [f"ratio {ratio}" + (f" ({interval})" if interval else ""), f"us {then} -> {now}", f"by {evidence}"]
    return "  ".join([*parts, notes] if notes else parts)


def markdown(found: Diff) -> str:
    """Markdown for a pull request: rows that are not SAME in a table, the worst first; the rest in a folded section."""
    device = plain(found.new.device or found.base.device or "an unknown device")
    same = [change for change in shown(found) if change.verdict is Verdict.SAME]
    others = [change for change in shown(found) if change.verdict is not Verdict.SAME]
    alone = "\n".join(f"- {where}: {plain(f'{case}: {names}')}" for where, case, names in unmatched(found))
    parts = [f"Speed of NEW over BASE on {device}. {summary(found)}.", *map(plain, remarks(found))]
    parts += [_markdown_table(found, others), _folded(f"{len(same)} SAME", _markdown_table(found, same))]
    parts += [_folded("Rows in only one of the two", alone)]
    return "\n\n".join(part for part in parts if part)


def _markdown_table(found: Diff, changes: Sequence[Change]) -> str:
    body = [[plain(cell) for cell in _cells(found, change)] for change in changes]
    return pipe_table(list(HEADS), body, right=set(NUMERIC)) if body else ""


def _folded(title: str, text: str) -> str:
    return f"<details><summary>{title}</summary>\n\n{text}\n\n</details>" if text else ""


def shown(found: Diff) -> list[Change]:
    """The changes to show, the worst first. A row without a time in both runs is counted, but not shown."""
    rank = list(Verdict)
    shown = [change for change in found.changes if change.verdict is not Verdict.UNTIMED or change.notes]
    return sorted(shown, key=lambda change: rank.index(change.verdict))


def _cells(found: Diff, change: Change) -> list[str]:
    """The cells of a row in the order of `HEADS`: one line each, not yet escaped."""
    ratio, interval = "", ""
    if change.ratio is not None:
        ratio = number(as_ratio(change.ratio.value), 4)
        if math.isfinite(change.ratio.down) and math.isfinite(change.ratio.up):
            interval = f"{number(as_ratio(change.ratio.low), 4)} to {number(as_ratio(change.ratio.high), 4)}"
    times = [number(row.device_us, 4) for row in (change.base, change.new)]
    against = f"vs {change.control}"
    evidence = {Evidence.RANKED: against, Evidence.BOTH: f"device_us, {against}"}.get(change.evidence, change.evidence)
    texts = (case_name(change.base), found.name(change.base), evidence, "; ".join(change.notes))
    return [change.verdict, ratio, interval, *times, *map(one_line, texts)]


def unmatched(found: Diff) -> Iterator[tuple[str, str, str]]:
    """The rows that one run lacks, for each case: the side that has them, the case, the implementations."""
    for side, rows in (("BASE", found.only_in_base), ("NEW", found.only_in_new)):
        cases: dict[str, list[str]] = {}
        for row in rows:
            cases.setdefault(case_name(row), []).append(found.name(row))
        for case, implementations in cases.items():
            yield f"only in {side}", case, ", ".join(implementations)


def document(found: Diff) -> dict[str, Any]:
    """The comparison as one JSON document. A number that is unknown or not finite is null."""
    return {
        "base": {"path": str(found.base.path), "device": found.base.device},
        "new": {"path": str(found.new.path), "device": found.new.device},
        "threshold": found.threshold,
        "counts": found.counts,
        "exit_status": found.exit_status,
        "remarks": remarks(found),
        "rows": [_json_change(change) for change in found.changes],
        "only_in_base": [_json_fields(row, IDENTITY) for row in found.only_in_base],
        "only_in_new": [_json_fields(row, IDENTITY) for row in found.only_in_new],
    }


def _json_change(change: Change) -> dict[str, Any]:
    ratio = change.ratio
    logarithms = {} if ratio is None else {"ratio": ratio.value, "ratio_low": ratio.low, "ratio_high": ratio.high}
    numbers = {name: as_ratio(value) for name, value in logarithms.items() if math.isfinite(value)}
    return {
        **_json_fields(change.base, IDENTITY),
        "verdict": change.verdict,
        "evidence": change.evidence,
        "control": change.control,
        **{name: numbers.get(name) for name in ("ratio", "ratio_low", "ratio_high")},
        "base": _json_fields(change.base, ("status", *MEASURED)),
        "new": _json_fields(change.new, ("status", *MEASURED)),
        "notes": list(change.notes),
    }


def _json_fields(row: Row, names: Sequence[str]) -> dict[str, Any]:
    return {name: getattr(row, name) for name in names}
