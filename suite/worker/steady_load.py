"""Runs one implementation back to back on sets of inputs that together exceed the last-level cache."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING

from suite import hardware
from suite.implementations.bound_call import bind
from suite.implementations.implementation import Implementation

if TYPE_CHECKING:
    from suite.checking.problem import Problem
    from suite.timing.sustained import Sustained


def steady_load(implementation: Implementation, problem: Problem, on_progress: Callable[[], None]) -> Sustained:
    """Measure calls of `implementation` on the case of `problem`, back to back.

    Both draws of the inputs take part, in memory of their own for each set. `on_progress` is called while the
    implementation runs.
    """
    from suite.checking.input_sets import input_sets
    from suite.timing.call import Call
    from suite.timing.sampling import no_garbage_collection
    from suite.timing.sustained import sustained
    from suite.timing.target import target

    here = target(problem.device)
    sets = input_sets(problem, here.cache_bytes)
    on_progress()
    bound = bind(implementation, sets[0], problem.op.arguments(problem.case), on_built=on_progress)
    call = Call(implementation.name, bound.in_turn(sets), implementation.adapter.wait)
    with ExitStack() as settings:
        if here.on_host:
            settings.enter_context(hardware.native_threads_set())
        settings.enter_context(no_garbage_collection())
        return sustained(call, here, on_progress)
