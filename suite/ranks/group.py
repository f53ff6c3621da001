"""Decisions that all ranks make together, at the same line of the program, over the host's network."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from random import Random, SystemRandom
from typing import Any

import torch
import torch.distributed as dist

from suite.checking.repeats import Duration


@cache
def host_group() -> Any:
    """The group of all ranks over the host's network: its exchanges use no GPU. All ranks make the first call
    together."""
    return dist.new_group(backend="gloo")


def largest(value: float) -> float:
    """The largest of the ranks' values."""
    found = torch.tensor(value, dtype=torch.float64)
    dist.all_reduce(found, dist.ReduceOp.MAX, group=host_group())
    return float(found)


def gathered(value: Any) -> list[Any]:
    """The values of all ranks, by rank."""
    found: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(found, value, group=host_group())
    return found


def meet() -> None:
    """Return once all ranks have called this."""
    dist.barrier(group=host_group())


def shared_random() -> Random:
    """The same random numbers on all ranks, from the operating system of the first one."""
    seeds = [SystemRandom().getrandbits(62)]
    dist.broadcast_object_list(seeds, 0, group=host_group())
    return Random(seeds[0])


@dataclass(frozen=True)
class Together(Duration):
    """A duration that ends on all ranks after the same call: once it has ended on one.

    They decide before calls 1, 2, 3, 5, 9 ..., each time about as many calls as they have made: agreeing takes as long
    as a small call.
    """

    def allows(self, count: int, spent_s: float, call_s: float) -> bool:
        if count & (count - 1):
            return True
        last = max(2 * count - 1, 0)
        allowed = super().allows(last, spent_s / max(count, 1) * last, call_s)
        return largest(0.0 if allowed else 1.0) == 0.0
