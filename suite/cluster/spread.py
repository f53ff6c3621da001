"""Times sampled cases on several devices of the model, after all cases have run, and records how far they differ."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from suite.core.text import joined_reasons
from suite.results.row import Attempt, Row, Status

SHARE = 0.05
"""The number of times on further devices, relative to the number of cases. The first case is always sampled."""
MAX_DEVICES = 8
"""The largest number of devices that time a sampled case."""


@dataclass
class _Sampled:
    """A sampled case: its rows, the devices that have timed it or do so, and the times of each implementation."""

    rows: Sequence[Row]
    devices: set[str]
    times: dict[str, list[float]]


class Spread:
    """The sampled cases of a run of `cases` cases on `devices` devices. They are spaced evenly over the plan."""

    def __init__(self, cases: int, devices: int) -> None:
        self._most = min(devices, MAX_DEVICES)
        step = round((self._most - 1) / SHARE)
        self._numbers = range(0, cases, step) if step else range(0)
        self._sampled: dict[int, _Sampled] = {}
        self._open: dict[int, _Sampled] = {}
        """The sampled cases that further devices are to time."""
        self._running = 0

    def finish(self, number: int, device: str, rows: Sequence[Row]) -> None:
        """Record the rows of a case that `device` has run."""
        times = {row.implementation: [row.device_us] for row in rows if row.device_us and _is_timed(row)}
        if number in self._numbers and times and not any(row.gpus for row in rows):
            self._sampled[number] = self._open[number] = _Sampled(rows, {device}, times)

    def begin(self, device: str) -> tuple[int, Sequence[Row]] | None:
        """The number and the rows of a case that `device` is to time too; None if there is none."""
        number = next((number for number, each in self._open.items() if device not in each.devices), None)
        if number is None:
            return None
        sampled = self._open[number]
        sampled.devices.add(device)
        if len(sampled.devices) == self._most:
            del self._open[number]
        self._running += 1
        return number, sampled.rows

    def end(self, number: int, again: Sequence[Row], lost: str = "") -> list[Row]:
        """Record the rows of a case from a further device: none if it was lost. Returns the case's rows that change.

        lost: how it was lost, which is added to the reasons of all rows.
        """
        self._running -= 1
        sampled = self._sampled[number]
        if lost:
            for row in sampled.rows:
                row.reason = joined_reasons(row.reason, f"not timed on another device: {lost}")
            return list(sampled.rows)
        there = {row.implementation: row for row in again}
        changed = [row for row in sampled.rows if row.implementation in there]
        for row in changed:
            _add(row, there[row.implementation], sampled.times[row.implementation])
        return changed

    def is_complete(self, devices: Collection[str]) -> bool:
        """True if none of the remaining `devices` times a case again or is to do so."""
        return not self._running and all(each.devices.issuperset(devices) for each in self._open.values())


def _is_timed(row: Row) -> bool:
    return row.status is Status.OK and row.timed is Attempt.DONE


def _add(row: Row, again: Row, times: list[float]) -> None:
    """Add the result of another device to `row`, in place. A failure there counts, unless it came from outside."""
    if again.killed_from_outside:
        row.reason = joined_reasons(row.reason, f"not timed on another device: {again.reason}")
        return
    if again.status is Status.OK and again.device_us:
        times.append(again.device_us)
        row.gpus, row.gpu_spread = len(times), max(times) / min(times) - 1
        return
    where = " ".join(filter(None, (again.host, again.gpu)))
    row.status = again.status
    row.reason = joined_reasons(row.reason, f"on another device, {where}: {again.reason or 'it has no time'}")
