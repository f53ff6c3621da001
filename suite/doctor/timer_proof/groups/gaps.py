"""Checks two kernels with an idle gap between them, of the same framework and of two frameworks."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from suite.doctor.timer_proof.checks import Check, Timings
from suite.doctor.timer_proof.expectations import requires_idle, total
from suite.doctor.timer_proof.groups.group import Group, Spins, spin
from suite.doctor.timer_proof.work import Arena, Kit
from suite.timing import Call

IDLE_S, MIN_IDLE_US = 0.01, 1000.0
"""Time that the host sleeps between the two launches, and the shortest gap that the record must have."""


def idle_gaps(kits: Sequence[Kit], arena: Arena, spins: Spins) -> Group:
    """The gap is not counted: the time of the call is the sum of its two kernels."""
    calls, checks = [], []
    halves: dict[str, tuple[Callable[[], object], Callable[[], object]]] = {}
    for kit in kits:
        if kit.spin is not None:
            halves[kit.name] = spin(kit, spins.cycles(300)), spin(kit, spins.cycles(500))
        else:
            halves[kit.name] = partial(kit.add_one, arena.elements // 4), partial(kit.add_one, arena.elements // 2)
    pairs = [(kit, kit) for kit in kits]
    both = [kit for kit in kits if kit.name in ("torch", "cuda")]
    pairs += [(both[1], both[0])] if len(both) == 2 else []
    for kit in kits:
        for half, which in zip(halves[kit.name], ("first", "second"), strict=True):
            calls.append(Call(f"{kit.name}: {which}", half, kit.wait))
    for first, second in pairs:
        label = first.name if first is second else f"{first.name}, {second.name}"
        name = f"{label}: idle between"
        calls.append(
            Call(
                name,
                partial(_issue_with_gap, halves[first.name][0], halves[second.name][1]),
                _wait_for_both(first.wait, second.wait),
            )
        )
        checks.append(
            Check(
                label,
                f"two kernels, the host asleep for {1000 * IDLE_S:g} ms between",
                name,
                total(f"{first.name}: first", f"{second.name}: second"),
                "the two alone, added",
                activities={"kernel": 2},
                requirement=requires_idle(MIN_IDLE_US),
                note=partial(_span_note, name),
            )
        )
    return Group(tuple(calls), tuple(checks), budget_s=2.0)


def _issue_with_gap(first: Callable[[], object], second: Callable[[], object]) -> tuple[object, object]:
    one = first()
    time.sleep(IDLE_S)
    return one, second()


def _wait_for_both(first: Callable[[Any], None], second: Callable[[Any], None]) -> Callable[[Any], None]:
    def wait(results: tuple[object, object]) -> None:
        first(results[0])
        second(results[1])

    return wait


def _span_note(name: str, timings: Timings) -> str:
    activities = timings[name].activities
    span = max(a.end for a in activities) - min(a.start for a in activities)
    return f"from first start to last end {span / 1000:,.0f} us"
