"""The groups of calls that prove the timer, each with its checks.

The calls of a group are timed together, then its checks are judged. The cache is warm, except in the checks of
coldness. Each call therefore starts from the state that an equal call left, including dirty lines of the cache. Twice
the work is then exactly twice the traffic.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from suite.doctor.timer_proof.groups import coldness, concurrency, gaps, memory, spins
from suite.doctor.timer_proof.groups.group import Group, Spins
from suite.doctor.timer_proof.work import Arena, Kit

__all__ = ["Group", "Spins", "group_makers"]


def group_makers(
    kits: Sequence[Kit], arena: Arena, clock_mhz: float, l2_bytes: int
) -> list[tuple[str, Callable[[], Group]]]:
    """The title of every group and the function that makes it. A group is made just before it is timed.

    `clock_mhz` is the highest SM clock, which sets the lengths of spins in cycles. `l2_bytes` is the size of the L2.
    """
    lengths = Spins(clock_mhz)
    spinning = [kit for kit in kits if kit.spin is not None]
    by_name = {kit.name: kit for kit in kits}
    found: list[tuple[str, Callable[[], Group]]] = [
        ("spins", partial(spins.long_spins, spinning, arena, lengths)),
        ("short spins", partial(spins.short_spins, spinning, lengths)),
        ("against the host's clock", partial(spins.against_host_clock, spinning, lengths)),
        ("idle gaps", partial(gaps.idle_gaps, kits, arena, lengths)),
        ("streams", partial(memory.streams, kits, arena)),
    ]
    if "cuda" in by_name:
        found.append(("many blocks", partial(spins.many_blocks, by_name["cuda"], arena)))
        found.append(("fills and copies", partial(memory.fills_and_copies, by_name["cuda"], arena, lengths)))
    if "torch" in by_name:
        found.append(("coldness: the reference", partial(coldness.reference, arena, l2_bytes)))
        found.append(("coldness", partial(coldness.evicted, arena, l2_bytes)))
        found.append(("overlap", partial(concurrency.two_streams, arena, lengths)))
        found.append(("graph", partial(concurrency.graph, arena, lengths)))
    return found
