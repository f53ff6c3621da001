"""The work that proves the timer, and what it should take.

A group is a set of calls that are timed together, with the checks that can be made once they are. The cache is warm
but where coldness is what is tested: each call then finds the device as an equal call has left it, the lines that it
still has to write back included, so that twice the work is exactly twice the traffic.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from suite.doctor.timer_proof.checks import (
    SHARE,
    Check,
    Timings,
    cycles,
    host_clock,
    idle_of,
    overlap_of,
    recorded,
    share,
    standard,
    times,
    total,
)
from suite.doctor.timer_proof.work import BLOCK_ELEMENTS, Arena, Kit
from suite.timing import Call, median

IDLE_S, LEAST_IDLE_US = 0.01, 1000.0
"""How long the host sleeps between two launches, and how long the device has to be idle for it to be a gap."""
MANY_BLOCKS, UNTRACED = 1 << 18, 9
"""Blocks of a kernel in which tracing would show, and how often it is called untraced."""
CLOCK_STEP_MHZ = 15.0
"""SM clocks are set in steps of this."""


@dataclass(frozen=True)
class Group:
    calls: tuple[Call, ...]
    checks: tuple[Check, ...]
    cache: str = "warm"
    budget_s: float = 1.0


Maker = Callable[[], Group]


@dataclass(frozen=True)
class Spins:
    """Lengths in cycles, at the highest clock."""

    clock_mhz: float

    def of(self, us: float) -> int:
        return round(us * self.clock_mhz)

    @property
    def clock_step(self) -> float:
        return CLOCK_STEP_MHZ / self.clock_mhz


def makers(kits: Sequence[Kit], arena: Arena, clock_mhz: float, l2_bytes: int) -> list[tuple[str, Maker]]:
    """Every group by its title, to be made when its turn comes. `clock_mhz` is the highest SM clock, by which lengths
    are chosen."""
    spins = Spins(clock_mhz)
    spinning = [kit for kit in kits if kit.spin is not None]
    by_name = {kit.name: kit for kit in kits}
    found: list[tuple[str, Maker]] = [
        ("spins", partial(_long_spins, spinning, arena, spins)),
        ("short spins", partial(_short_spins, spinning, spins)),
        ("against the host's clock", partial(_against_the_host, spinning, spins)),
        ("idle gaps", partial(_idle_gaps, kits, arena, spins)),
        ("streams", partial(_streams, kits, arena)),
    ]
    if "cuda" in by_name:
        found.append(("many blocks", partial(_many_blocks, by_name["cuda"], arena)))
        found.append(("fills and copies", partial(_fills_and_copies, by_name["cuda"], arena, spins)))
    if "torch" in by_name:
        found.append(("coldness: the reference", partial(_cold_reference, arena, l2_bytes)))
        found.append(("coldness", partial(_coldness, arena, l2_bytes)))
        found.append(("overlap", partial(_overlap, arena, spins)))
        found.append(("graph", partial(_graph, arena, spins)))
    return found


def _spin(kit: Kit, count: int) -> Callable[[], object]:
    assert kit.spin is not None
    return partial(kit.spin, count)


def _long_spins(kits: Sequence[Kit], arena: Arena, spins: Spins) -> Group:
    calls, checks = [], []
    count = spins.of(1000)
    for kit in kits:
        one, two = f"{kit.name}: spin", f"{kit.name}: spin, twice as long"
        calls += [Call(one, _spin(kit, count), kit.wait), Call(two, _spin(kit, 2 * count), kit.wait)]
        checks.append(
            Check(
                kit.name,
                f"spin of {count:,} cycles",
                one,
                cycles(count, one),
                "cycles over the SM clock; 1% and one step of the clock (15 MHz)",
                down=share(SHARE + spins.clock_step),
                up=share(SHARE + spins.clock_step),
                note=partial(_clocks, one, arena) if kit.name == "cuda" else lambda timings: "",
            )
        )
        checks.append(Check(kit.name, f"spin of {2 * count:,} cycles", two, times(2, one), "twice the one before"))
    return Group(tuple(calls), tuple(checks))


def _clocks(name: str, arena: Arena, timings: Timings) -> str:
    """The SM clock as NVML tells it, and as the device's own timer does, by the last spin."""
    spun, ns = (int(value) for value in arena.elapsed.tolist())
    by_timer = f", {1000 * spun / ns:.0f} MHz by the device's timer" if ns > 0 else ""
    clock = timings[name].clock_sm_mhz
    return f"SM clock {clock:.0f} MHz by NVML{by_timer}" if clock else by_timer.removeprefix(", ")


def _short_spins(kits: Sequence[Kit], spins: Spins) -> Group:
    """Where a launch counts: what 5 us more of the same work add, and what twenty launches add up to."""
    calls, checks = [], []
    count, longer, many = spins.of(5), spins.of(20), 20
    for kit in kits:
        one, two, burst, twenty = (f"{kit.name}: {what}" for what in ("5 us", "10 us", "20 us", "20 times 20 us"))
        calls += [
            Call(one, _spin(kit, count), kit.wait),
            Call(two, _spin(kit, 2 * count), kit.wait),
            Call(burst, _spin(kit, longer), kit.wait),
            Call(twenty, partial(_repeat, _spin(kit, longer), many), kit.wait),
        ]
        checks.append(
            Check(
                kit.name,
                f"spin of {2 * count:,} cycles",
                two,
                cycles(count, two, after=one),
                f"a spin of {count:,} cycles, and as many more",
            )
        )
        checks.append(
            Check(
                kit.name,
                f"{many} spins of {longer:,} cycles in one call",
                twenty,
                times(many, burst),
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


def _against_the_host(kits: Sequence[Kit], spins: Spins) -> Group:
    """20 ms, long enough for launch and wake-up, which only the host's clock sees, to be small beside it."""
    calls, checks = [], []
    for kit in kits:
        name = f"{kit.name}: 20 ms"
        calls.append(Call(name, _spin(kit, spins.of(20_000)), kit.wait))
        checks.append(
            Check(
                kit.name,
                "spin of 20 ms, by the host's clock",
                name,
                host_clock(name),
                "the same call's latency, which has launch and wake-up in it (100 us); one step of the SM clock",
                down=lambda us: 100 + spins.clock_step * us,
                up=share(spins.clock_step),
            )
        )
    return Group(tuple(calls), tuple(checks))


def _idle_gaps(kits: Sequence[Kit], arena: Arena, spins: Spins) -> Group:
    calls, checks = [], []
    halves: dict[str, tuple[Callable[[], object], Callable[[], object]]] = {}
    for kit in kits:
        if kit.spin is not None:
            halves[kit.name] = _spin(kit, spins.of(300)), _spin(kit, spins.of(500))
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
            Call(name, partial(_apart, halves[first.name][0], halves[second.name][1]), _both(first.wait, second.wait))
        )
        checks.append(
            Check(
                label,
                f"two kernels, the host asleep for {1000 * IDLE_S:g} ms between",
                name,
                total(f"{first.name}: first", f"{second.name}: second"),
                "the two alone, added",
                activities={"kernel": 2},
                also=idle_of(LEAST_IDLE_US),
                note=partial(_span_note, name),
            )
        )
    return Group(tuple(calls), tuple(checks), budget_s=2.0)


def _together(first: Callable[[], object], second: Callable[[], object]) -> tuple[object, object]:
    return first(), second()


def _apart(first: Callable[[], object], second: Callable[[], object]) -> tuple[object, object]:
    one = first()
    time.sleep(IDLE_S)
    return one, second()


def _both(first: Callable[[Any], None], second: Callable[[Any], None]) -> Callable[[Any], None]:
    def wait(results: tuple[object, object]) -> None:
        first(results[0])
        second(results[1])

    return wait


def _span_note(name: str, timings: Timings) -> str:
    activities = timings[name].activities
    span = max(a.end for a in activities) - min(a.start for a in activities)
    return f"from first start to last end {span / 1000:,.0f} us"


def _streams(kits: Sequence[Kit], arena: Arena) -> Group:
    """out = x + 1 through memory: every framework's kernel moves the same bytes, and doubling them doubles its time."""
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
                f"x + 1, {_mib(8 * half)} moved",
                one,
                _fastest([first for first, _ in names.values()]),
                "the fastest framework; 15%, since kernels differ in how near they come to the bandwidth",
                down=standard,
                up=share(0.15),
                note=partial(_bandwidth, one, 8 * half),
            )
        )
        checks.append(Check(kit.name, f"x + 1, {_mib(16 * half)} moved", two, times(2, one), "twice the one before"))
    return Group(tuple(calls), tuple(checks), budget_s=2.0)


def _fastest(names: Sequence[str]) -> Callable[[Timings], float]:
    return lambda timings: min(recorded(name, timings) for name in names if _has(name, timings))


def _has(name: str, timings: Timings) -> bool:
    return name in timings and timings[name].device_us is not None


def _bandwidth(name: str, size: int, timings: Timings) -> str:
    return f"{size / recorded(name, timings) / 1e3:,.0f} GB/s"


def _fills_and_copies(kit: Kit, arena: Arena, spins: Spins) -> Group:
    """What is no kernel: a call's memset and memcpy count as kernels do."""
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
                f"{kind} of {_mib(2 * half)}",
                two,
                times(2, one),
                f"twice one of {_mib(half)}",
                activities={kind: 1},
                note=partial(_bandwidth, two, 2 * half * traffic),
            )
        )
    spin, mixed = f"{kit.name}: spin beside a fill", f"{kit.name}: fill, then spin"
    spinning = _spin(kit, spins.of(300))
    calls.append(Call(spin, spinning, kit.wait))
    calls.append(Call(mixed, partial(_together, partial(kit.fill, half), spinning), kit.wait))
    checks.append(
        Check(
            kit.name,
            "a memset and a spin in one call",
            mixed,
            total(f"{kit.name}: fill", spin),
            "the two alone, added",
            activities={"memset": 1, "kernel": 1},
        )
    )
    return Group(tuple(calls), tuple(checks), budget_s=1.5)


def _many_blocks(kit: Kit, arena: Arena) -> Group:
    """A tracer that takes a little time for each block lengthens the kernel itself. What the blocks write down does not
    depend on the tracer, so what they write down before it is there says how long the kernel takes without.
    """
    assert kit.blocks is not None
    many = min(MANY_BLOCKS, arena.elements // BLOCK_ELEMENTS)
    one, all_ = f"{kit.name}: one block", f"{kit.name}: {many:,} blocks"
    untraced = {}
    for name, count in ((one, 1), (all_, many)):
        spans = []
        for _ in range(UNTRACED):
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
        "from the first block's begin to the last one's end, untraced, and what a launch adds to a block's",
        note=lambda timings: f"{untraced[all_]:.2f} us by the blocks",
    )
    calls = Call(one, partial(kit.blocks, 1), kit.wait), Call(all_, partial(kit.blocks, many), kit.wait)
    return Group(calls, (check,))


IN_TURN, AGAIN = "torch: read, in turn", "torch: read, again"


def _pieces(arena: Arena, l2_bytes: int) -> Any:
    """16 vectors of half the cache's size: the next in turn has not been touched for seven times the cache's size."""
    words = min(l2_bytes // 8, arena.elements // 16)
    return arena.x[: 16 * words].view(16, words)


def _cold_reference(arena: Arena, l2_bytes: int) -> Group:
    """Data that is cold without being evicted, and data that is warm."""
    import torch

    pieces, sums = _pieces(arena, l2_bytes), torch.empty((), device=arena.device)
    turns = itertools.cycle(pieces.unbind())
    calls = (
        Call(IN_TURN, lambda: torch.sum(next(turns), dim=0, out=sums), arena.wait),
        Call(AGAIN, partial(torch.sum, pieces[0], dim=0, out=sums), arena.wait),
    )
    return Group(calls, ())


def _coldness(arena: Arena, l2_bytes: int) -> Group:
    import torch

    piece, sums = _pieces(arena, l2_bytes)[0], torch.empty((), device=arena.device)
    evicted = "torch: read, evicted"
    check = Check(
        "torch",
        f"sum of {_mib(4 * piece.numel())}, the cache evicted",
        evicted,
        partial(recorded, IN_TURN),
        "one of 16 such pieces read in turn; 10%",
        down=share(0.1),
        up=share(0.1),
        activities=None,
        note=lambda timings: f"{recorded(AGAIN, timings):.2f} us when read again and again",
    )
    return Group((Call(evicted, partial(torch.sum, piece, dim=0, out=sums), arena.wait),), (check,), cache="cold")


def _overlap(arena: Arena, spins: Spins) -> Group:
    import torch

    side = torch.cuda.Stream(arena.device)
    short, long = spins.of(300), spins.of(1000)

    def issue() -> None:
        torch.cuda._sleep(long)
        with torch.cuda.stream(side):
            torch.cuda._sleep(short)

    alone, both = "torch: the longer alone", "torch: two streams"
    return Group(
        (Call(alone, partial(torch.cuda._sleep, long), arena.wait), Call(both, issue, arena.wait)),
        (
            Check(
                "torch",
                "a spin of 300 us during one of 1000 us, on two streams",
                both,
                times(1, alone),
                "the longer alone",
                activities={"kernel": 2},
                also=overlap_of(250),
            ),
        ),
    )


def _graph(arena: Arena, spins: Spins) -> Group:
    import torch

    count, many = spins.of(100), 10
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):  # other frameworks have threads of their own
        for _ in range(many):
            torch.cuda._sleep(count)
    one, replay = "torch: 100 us", "torch: graph"
    return Group(
        (Call(one, partial(torch.cuda._sleep, count), arena.wait), Call(replay, graph.replay, arena.wait)),
        (
            Check(
                "torch",
                f"a graph of {many} spins of 100 us",
                replay,
                times(many, one),
                f"{many} times one of them",
                activities={"kernel": many},
            ),
        ),
    )


def _mib(size: int) -> str:
    return f"{size / 2**20:,.0f} MiB"
