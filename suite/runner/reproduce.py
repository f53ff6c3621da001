"""Runs rows of a published table again, drawn at random, and says how many fall within their intervals."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from statistics import median
from typing import Any

from suite import hardware, ops
from suite.core.errors import UsageError
from suite.core.text import one_line
from suite.diff.change import case_name, has_time
from suite.diff.load import Side, load
from suite.diff.render import changed_conditions
from suite.hardware.device import Device
from suite.implementations import builtin
from suite.problem.case import Case
from suite.results.render import number
from suite.results.row import Mode, Row
from suite.runner.compare import compare
from suite.runner.options import Options
from suite.runner.plan import Job


@dataclass(frozen=True)
class Repeated:
    """A published row, and the same row measured again."""

    then: Row
    now: Row

    @property
    def within(self) -> bool:
        """True if the new time lies in the published interval."""
        low, high, us = self.then.device_us_low, self.then.device_us_high, self.now.device_us
        return low is not None and high is not None and us is not None and low <= us <= high

    @property
    def text(self) -> str:
        """One line: the row, its published time with the interval, the new time, and whether that is within."""
        then, now = self.then, self.now
        published = (
            f"{number(then.device_us, 4)} [{number(then.device_us_low, 4)}, {number(then.device_us_high, 4)}] us"
        )
        if not has_time(now):
            result = f"now {now.status}: {now.reason}"
        else:
            change = 100 * ((now.device_us or 0.0) / (then.device_us or 1.0) - 1)
            result = f"now {number(now.device_us, 4)} us ({change:+.1f}%), {'within' if self.within else 'outside'}"
        return one_line(f"{case_name(then)} {then.implementation}: {published}, {result}")


def published(folder: Path) -> Side:
    """The rows of a results folder that have a time with an interval, whose implementations this tree has.

    Raises `UsageError` if there are none.
    """
    side = load(folder)
    rows = {key: row for key, row in side.rows.items() if _can_run_again(row)}
    if not rows:
        raise UsageError(f"{folder}: no row with a time that this tree can run again")
    return Side(side.path, rows, side.environment)


def _can_run_again(row: Row) -> bool:
    known = row.operation in ops.names() and row.implementation in {
        each.name for each in builtin.implementations(row.operation)
    }
    return known and has_time(row) and row.execution is Mode.NATIVE and row.device_us_low is not None


def drawn(side: Side, count: int, seed: int, device: Device) -> list[Row]:
    """`count` rows of the side's own device type, or all if there are fewer, drawn by `seed`.

    The same table and the same seed give the same rows on every machine.
    """
    rows = [row for _, row in sorted(side.rows.items()) if row.device.partition(":")[0] == device.type]
    if not rows:
        raise UsageError(f"{side.path}: its rows are of another kind of device than {device.name}")
    return Random(seed).sample(rows, min(count, len(rows)))


def case_of(row: Row) -> Case:
    """The case that a row names. Raises `UsageError` if this tree has none with its label."""
    op = ops.get(row.operation)
    parts = dict(([*part.split("=", 1), "True"])[:2] for part in row.case.split(","))
    sizes = tuple(int(parts.pop(name, "-1")) for name in op.dims)
    inputs = parts.pop("inputs", "normal")
    options = {option.name: option.named(parts.get(option.name)) for option in op.options}
    case = replace(op.case(sizes, row.dtype, row.precision, inputs=inputs, **options), ranks=row.ranks or 1)
    if case.label != row.case:
        raise UsageError(f"{row.operation} {row.case}: this tree has no such case")
    return case


def run(rows: Sequence[Row], side: Side, device: Device, on_case: Callable[[str], None]) -> list[Repeated]:
    """Run each row again, beside the fastest vendor row of its case, as the published run timed it."""
    found: list[Repeated] = []
    for case_key in dict.fromkeys(row.case_key for row in rows):
        here = [row for row in rows if row.case_key == case_key]
        on_case(case_name(here[0]))
        vendors = [row for row in side.rows.values() if row.case_key == case_key and row.vendor and row.device_us]
        best = min(vendors, key=lambda row: row.device_us or 0.0, default=here[0])
        names = dict.fromkeys([*(row.implementation for row in here), best.implementation])
        op = ops.get(here[0].operation)
        job = Job(op, (case_of(here[0]),), tuple(builtin.find(op.name, name) for name in names))
        options = Options(device, here[0].cache or "cold", seed=here[0].seed)
        now = {row.implementation: row for row in compare([job], options)}
        found += [Repeated(row, now[row.implementation]) for row in here]
    return found


def summary(found: Sequence[Repeated], side: Side, device: Device) -> list[str]:
    """Sentences: how many rows are within their intervals, how far the times have moved, what else has changed."""
    timed = [each for each in found if has_time(each.now)]
    ratios = [(each.now.device_us or 0.0) / (each.then.device_us or 1.0) for each in timed]
    lines = [f"{sum(each.within for each in found)} of {len(found)} rows within their 95% intervals"]
    if ratios:
        lines.append(f"times now / then: median {median(ratios):.3f}, from {min(ratios):.3f} to {max(ratios):.3f}")
    moved = [_clocks(timed), *changed_conditions(side.environment or {}, _record(device))]
    lines += [f"changed: {', '.join(filter(None, moved))}"] if any(moved) else ["changed: nothing that is recorded"]
    if side.device is not None and side.device != device.name:
        lines.append(f"different device: {one_line(side.device)} there, {one_line(device.name)} here")
    return lines


def _record(device: Device) -> dict[str, Any]:
    return hardware.environment_record(device.type, device.index, "")


def _clocks(found: Sequence[Repeated]) -> str:
    pairs = [(each.then.clock_sm_mhz, each.now.clock_sm_mhz) for each in found]
    known = [(then, now) for then, now in pairs if then and now]
    if not known:
        return ""
    then, now = (median(each) for each in zip(*known, strict=True))
    return f"SM clock {then:.0f} -> {now:.0f} MHz" if then != now else ""
