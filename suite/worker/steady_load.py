"""Runs one implementation back to back on sets of inputs that together exceed the last-level cache."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from itertools import cycle
from typing import TYPE_CHECKING, Any

from suite import hardware
from suite.implementations.bound_call import bind
from suite.implementations.implementation import Implementation

if TYPE_CHECKING:
    import torch

    from suite.checking.problem import Problem
    from suite.timing.sustained import Sustained
    from suite.timing.target import Target


def steady_load(implementation: Implementation, problem: Problem, on_progress: Callable[[], None]) -> Sustained:
    """Measure calls of `implementation` on the case of `problem`, back to back.

    Both draws of the inputs take part, in memory of their own for each set. `on_progress` is called while the
    implementation runs.
    """
    from suite.timing.call import Call
    from suite.timing.sampling import no_garbage_collection
    from suite.timing.sustained import sustained
    from suite.timing.target import target

    here = target(problem.device)
    sets = input_sets(problem, here)
    on_progress()
    bound = bind(implementation, sets[0], problem.op.arguments(problem.case), on_built=on_progress)
    adapter = implementation.adapter
    inputs = cycle([tuple(map(adapter.to_native, each)) for each in sets])

    def issue() -> Any:
        return bound.function(*next(inputs), **bound.arguments)

    with ExitStack() as settings:
        if here.on_host:
            settings.enter_context(hardware.native_threads_set())
        settings.enter_context(no_garbage_collection())
        return sustained(Call(implementation.name, issue, adapter.wait), here, on_progress)


def input_sets(problem: Problem, here: Target) -> list[tuple[torch.Tensor, ...]]:
    """Copies of the case's inputs that together exceed twice the last-level cache of `here`."""
    from suite.checking.memory import copies_with_layout
    from suite.timing.sustained import sets_needed

    size = sum(each.numel() * each.element_size() for each in problem.draws[0])
    return [
        copies_with_layout(problem.draws[i % len(problem.draws)]) for i in range(sets_needed(size, here.cache_bytes))
    ]
