"""Checks work that is bound by memory: kernels, fills and copies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from suite.doctor.timer_proof.checks import Check, Timings, share, standard
from suite.doctor.timer_proof.expectations import recorded, times, total
from suite.doctor.timer_proof.groups.group import Group, Spins, bandwidth_note, mib, spin
from suite.doctor.timer_proof.work import Arena, Kit
from suite.timing import Call


def streams(kits: Sequence[Kit], arena: Arena) -> Group:
    """out = x + 1: the kernels of all frameworks move the same bytes, and twice the bytes take twice the time."""
    calls, checks = [], []
    half = arena.elements // 2
    names = {kit.name: (f"{kit.name}: x + 1", f"{kit.name}: x + 1, twice as much") for kit in kits}
    for kit in kits:
        one, two = names[kit.name]
        calls += [
            Call(one, partial(kit.add_one, half), kit.wait),
            Call(two, partial(kit.add_one, 2 * half), kit.wait),
        ]
        checks.append(
            Check(
                kit.name,
                f"x + 1, {mib(8 * half)} moved",
                one,
                _fastest([first for first, _ in names.values()]),
                "the fastest framework; 15%, since kernels differ in bandwidth",
                down=standard,
                up=share(0.15),
                note=partial(bandwidth_note, one, 8 * half),
            )
        )
        checks.append(Check(kit.name, f"x + 1, {mib(16 * half)} moved", two, times(2, one), "twice the one before"))
    return Group(tuple(calls), tuple(checks), budget_s=2.0)


def _fastest(names: Sequence[str]) -> Callable[[Timings], float]:
    return lambda timings: min(recorded(name, timings) for name in names if _has(name, timings))


def _has(name: str, timings: Timings) -> bool:
    return name in timings and timings[name].device_us is not None


def fills_and_copies(kit: Kit, arena: Arena, spins: Spins) -> Group:
    """The activities memset and memcpy count like kernels."""
    assert kit.fill is not None
    assert kit.copy is not None
    calls, checks = [], []
    half = 2 * arena.elements  # bytes of half an array
    for what, work, kind, traffic in (("fill", kit.fill, "memset", 1), ("copy", kit.copy, "memcpy", 2)):
        one, two = f"{kit.name}: {what}", f"{kit.name}: {what}, twice as much"
        calls += [Call(one, partial(work, half), kit.wait), Call(two, partial(work, 2 * half), kit.wait)]
        checks.append(
            Check(
                kit.name,
                f"{kind} of {mib(2 * half)}",
                two,
                times(2, one),
                f"twice one of {mib(half)}",
                activities={kind: 1},
                note=partial(bandwidth_note, two, 2 * half * traffic),
            )
        )
    alone, mixed = f"{kit.name}: spin beside a fill", f"{kit.name}: fill, then spin"
    spinning = spin(kit, spins.cycles(300))
    calls.append(Call(alone, spinning, kit.wait))
    calls.append(Call(mixed, partial(_issue_both, partial(kit.fill, half), spinning), kit.wait))
    checks.append(
        Check(
            kit.name,
            "a memset and a spin in one call",
            mixed,
            total(f"{kit.name}: fill", alone),
            "the two alone, added",
            activities={"memset": 1, "kernel": 1},
        )
    )
    return Group(tuple(calls), tuple(checks), budget_s=1.5)


def _issue_both(first: Callable[[], object], second: Callable[[], object]) -> tuple[object, object]:
    return first(), second()
