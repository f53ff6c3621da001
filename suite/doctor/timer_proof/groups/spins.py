"""Checks kernels of known time: spins of a number of cycles, and blocks that read the device's timer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from suite.doctor.timer_proof.checks import SHARE, Check, Timings, share
from suite.doctor.timer_proof.expectations import cycles, host_clock, recorded, times
from suite.doctor.timer_proof.groups.group import Group, Spins, spin
from suite.doctor.timer_proof.work import BLOCK_ELEMENTS, Arena, Kit
from suite.timing import Call, median

MANY_BLOCKS, UNTRACED_CALLS = 1 << 18, 9
"""Number of blocks of a kernel that tracing would slow down measurably, and number of its calls without tracing."""


def long_spins(kits: Sequence[Kit], arena: Arena, spins: Spins) -> Group:
    """Spins of 1 ms by the SM clock, and of twice that."""
    calls, checks = [], []
    count = spins.cycles(1000)
    for kit in kits:
        one, two = f"{kit.name}: spin", f"{kit.name}: spin, twice as long"
        calls += [Call(one, spin(kit, count), kit.wait), Call(two, spin(kit, 2 * count), kit.wait)]
        checks.append(
            Check(
                kit.name,
                f"spin of {count:,} cycles",
                one,
                cycles(count, one),
                "cycles over the SM clock; 1% and one step of the clock (15 MHz)",
                down=share(SHARE + spins.clock_step),
                up=share(SHARE + spins.clock_step),
                note=partial(_clocks_note, one, arena) if kit.name == "cuda" else lambda timings: "",
            )
        )
        checks.append(Check(kit.name, f"spin of {2 * count:,} cycles", two, times(2, one), "twice the one before"))
    return Group(tuple(calls), tuple(checks))


def _clocks_note(name: str, arena: Arena, timings: Timings) -> str:
    """The SM clock by NVML, and by the device's timer during the last spin."""
    spun, ns = (int(value) for value in arena.elapsed.tolist())
    by_timer = f", {1000 * spun / ns:.0f} MHz by the device's timer" if ns > 0 else ""
    clock = timings[name].clock_sm_mhz
    return f"SM clock {clock:.0f} MHz by NVML{by_timer}" if clock else by_timer.removeprefix(", ")


def short_spins(kits: Sequence[Kit], spins: Spins) -> Group:
    """Spins about as short as a launch: 5 us and twice that, and twenty launches of 20 us in one call."""
    calls, checks = [], []
    count, longer, many = spins.cycles(5), spins.cycles(20), 20
    for kit in kits:
        one, two, single, twenty = (f"{kit.name}: {what}" for what in ("5 us", "10 us", "20 us", "20 times 20 us"))
        calls += [
            Call(one, spin(kit, count), kit.wait),
            Call(two, spin(kit, 2 * count), kit.wait),
            Call(single, spin(kit, longer), kit.wait),
            Call(twenty, partial(_repeat, spin(kit, longer), many), kit.wait),
        ]
        checks.append(
            Check(
                kit.name,
                f"spin of {2 * count:,} cycles",
                two,
                cycles(count, two, after=one),
                f"a spin of {count:,} cycles, plus {count:,} cycles",
            )
        )
        checks.append(
            Check(
                kit.name,
                f"{many} spins of {longer:,} cycles in one call",
                twenty,
                times(many, single),
                f"{many} times one of them; 0.3 us each",
                down=lambda _: 0.3 * many,
                up=lambda _: 0.3 * many,
                activities={"kernel": many},
            )
        )
    return Group(tuple(calls), tuple(checks))


def _repeat(issue: Callable[[], object], count: int) -> object:
    for _ in range(count - 1):
        issue()
    return issue()


def against_host_clock(kits: Sequence[Kit], spins: Spins) -> Group:
    """Spins of 20 ms. They are long compared to launch and wake-up, which only the host's time includes."""
    calls, checks = [], []
    for kit in kits:
        name = f"{kit.name}: 20 ms"
        calls.append(Call(name, spin(kit, spins.cycles(20_000)), kit.wait))
        checks.append(
            Check(
                kit.name,
                "spin of 20 ms, by the host's clock",
                name,
                host_clock(name),
                "the same call's latency, which includes launch and wake-up (100 us); one step of the SM clock",
                down=lambda us: 100 + spins.clock_step * us,
                up=share(spins.clock_step),
            )
        )
    return Group(tuple(calls), tuple(checks))


def many_blocks(kit: Kit, arena: Arena) -> Group:
    """A kernel of many blocks. A tracer that costs time for each block would slow it down.

    The blocks store the device's timer. Calls before tracing starts therefore give the kernel's time without a tracer.
    """
    assert kit.blocks is not None
    many = min(MANY_BLOCKS, arena.elements // BLOCK_ELEMENTS)
    one, all_ = f"{kit.name}: one block", f"{kit.name}: {many:,} blocks"
    untraced = {}
    for name, count in ((one, 1), (all_, many)):
        spans = []
        for _ in range(UNTRACED_CALLS):
            kit.wait(kit.blocks(count))
            spans.append(arena.span_us(count))
        untraced[name] = median(spans)

    def expect(timings: Timings) -> float:
        return untraced[all_] + recorded(one, timings) - untraced[one]

    check = Check(
        kit.name,
        f"{many:,} blocks with arithmetic",
        all_,
        expect,
        "from the first block's begin to the last one's end, untraced, plus the time that a launch adds to one block",
        note=lambda timings: f"{untraced[all_]:.2f} us by the blocks",
    )
    calls = Call(one, partial(kit.blocks, 1), kit.wait), Call(all_, partial(kit.blocks, many), kit.wait)
    return Group(calls, (check,))
