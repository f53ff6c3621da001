"""Copies of a case's inputs over which calls rotate, so that none of them finds its inputs in the cache."""

from __future__ import annotations

from typing import TYPE_CHECKING

from suite.checking.memory import copies_with_layout

if TYPE_CHECKING:
    import torch

    from suite.checking.problem import Problem

FOOTPRINT = 2
"""The sets of inputs have more than this many times the bytes of the last-level cache."""
MOST_BYTES = 1 << 38
"""Most addresses of all sets together."""
MAX_SETS = 16_384
"""The largest number of sets: binding each takes the host some 10 us."""


def sets_needed(input_bytes: int, cache_bytes: int) -> int:
    """Return the number of sets of `input_bytes` that together exceed FOOTPRINT times the cache, at most MAX_SETS."""
    return min(MAX_SETS, 1 + FOOTPRINT * cache_bytes // max(1, input_bytes))


def input_sets(problem: Problem, cache_bytes: int, most: int = MAX_SETS) -> list[tuple[torch.Tensor, ...]]:
    """Return copies of both draws in turn: as many sets as exceed FOOTPRINT times the cache, at most `most`."""
    size = sum(each.numel() * each.element_size() for each in problem.draws[0])
    span = sum(each.untyped_storage().nbytes() for each in problem.draws[0])
    count = min(most, sets_needed(size, cache_bytes), max(1, MOST_BYTES // max(1, span)))
    return [copies_with_layout(problem.draws[i % len(problem.draws)]) for i in range(count)]
