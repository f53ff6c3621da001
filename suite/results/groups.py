"""Groups rows by case and ranks those of one case. Every star, sentence, table and plot takes its winner from here."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from suite.results.noise import reference_of
from suite.results.row import Mode, Row, Status

NO_INTERVAL = 2.0
"""Largest factor by which a median of three to five samples, too few for an interval, is assumed to be wrong."""


def cases(rows: Iterable[Row]) -> list[list[Row]]:
    """Rows grouped by case, in the order of their first row."""
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(row.case_key, []).append(row)
    return list(groups.values())


@dataclass(frozen=True)
class Standing:
    """The ranking of the rows of one case on one device.

    Rows are ordered by their time. Those with `vs_best` above 1 come before the best vendor row, and the others after
    it, because a ratio of samples taken in turns is the better evidence. A noisy row is ranked only if its interval
    overlaps with that of no other row.
    """

    timed: Sequence[Row]
    """The rows that agree, are native, and have a possible time."""
    ranked: Sequence[Row]
    """Those that are ranked, the fastest first."""
    rivals: Sequence[Row]
    """Rows that are not ranked because they are noisy, and that may be faster than the first ranked row."""
    vendor: Row | None
    """The vendor row that ratios refer to; None if there is none, or if a noisy one may be faster."""
    is_certain: bool
    """False if ratios mean nothing: the vendor row that they refer to is not ranked, or a noisy one may be faster."""

    @property
    def comparable(self) -> bool:
        """True if at least two rows were timed, all by the same recorder."""
        return len(self.timed) > 1 and len({row.recorder for row in self.timed}) == 1

    @property
    def winner(self) -> Row | None:
        """The fastest row; None if there is nothing to compare it with, or if a noisy row may be faster."""
        return self.ranked[0] if self.comparable and self.ranked and not self.rivals else None

    def best(self, condition: Callable[[Row], bool]) -> Row | None:
        """The fastest ranked row for which the condition holds."""
        return next((row for row in self.ranked if condition(row)), None)

    def ratio(self, row: Row) -> float | None:
        """`vs_best`; None if it means nothing, because the row or what it is compared with is noisy and not ranked."""
        return row.vs_best if self.is_certain and (not row.noisy or self.is_ranked(row)) else None

    def is_ranked(self, row: Row) -> bool:
        return any(each is row for each in self.ranked)


def standings(rows: Iterable[Row]) -> dict[str, Standing]:
    """The ranking of the rows of one case, by device."""
    devices: dict[str, list[Row]] = {}
    for row in rows:
        devices.setdefault(row.device, []).append(row)
    return {device: _standing(group) for device, group in devices.items()}


def standing(rows: Sequence[Row]) -> Standing:
    """The ranking of the rows of one case that ran on the device of its first row."""
    return _standing([row for row in rows if row.device == rows[0].device])


def is_timed(row: Row) -> bool:
    """True if the row agrees, is native, and has a time that the device allows."""
    return row.status is Status.OK and row.execution is Mode.NATIVE and bool(row.device_us) and not row.suspect


def _standing(rows: Sequence[Row]) -> Standing:
    timed, vendor = [row for row in rows if is_timed(row)], reference_of(rows)
    spans = [_span(row, vendor) for row in timed]

    def may_be_faster(one: int, other: int) -> bool:
        return spans[one][0] <= spans[other][1]

    def decided(place: int) -> bool:
        others = (other for other in range(len(timed)) if other != place)
        apart = (not (may_be_faster(place, other) and may_be_faster(other, place)) for other in others)
        return len(timed) > 1 and all(apart)

    places = sorted(
        (place for place, row in enumerate(timed) if not row.noisy or decided(place)),
        key=lambda place: _place(timed[place], vendor),
    )
    doubtful = [place for place in range(len(timed)) if place not in places]
    rivals = [timed[place] for place in doubtful if places and may_be_faster(place, places[0])]
    best = next((place for place, row in enumerate(timed) if row is vendor), None)
    if best is None:
        best = next((place for place in places if timed[place].vendor), None)
    is_certain = best is None or not (
        best in doubtful or any(timed[place].vendor and may_be_faster(place, best) for place in doubtful)
    )
    found = timed[best] if is_certain and best is not None else None
    return Standing(timed, [timed[place] for place in places], rivals, found, is_certain)


def _place(row: Row, vendor: Row | None) -> tuple[int, float]:
    """The sort key of a row: before, at or after the best vendor row, then by time."""
    behind = 0 if vendor is None or row.vs_best is None else (row.vs_best < 1) - (row.vs_best > 1)
    return behind, row.device_us or math.inf


def _span(row: Row, vendor: Row | None) -> tuple[float, float]:
    """The smallest interval that holds two 95% intervals: of the row's time, and of the time by its ratio."""
    us = row.device_us or math.inf
    if row.device_us_low is None or row.device_us_high is None:
        return us / NO_INTERVAL, us * NO_INTERVAL
    ends = [row.device_us_low, row.device_us_high]
    if vendor is not None and vendor.device_us and row.vs_best_low and row.vs_best_high:
        ends += [vendor.device_us / row.vs_best_high, vendor.device_us / row.vs_best_low]
    return min(ends), max(ends)
