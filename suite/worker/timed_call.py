"""A bound implementation in the form in which it is timed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from suite.implementations.bound_call import BoundCall

if TYPE_CHECKING:
    from suite.checking.problem import Problem
    from suite.timing.call import Call


def timed_call(bound: BoundCall, problem: Problem) -> Call:
    """The call of `bound` on the case of `problem`."""
    from suite.checking.input_sets import input_sets
    from suite.timing.call import Call
    from suite.timing.target import cache_bytes

    implementation = bound.implementation
    return Call(
        implementation.name,
        bound.issue,
        implementation.adapter.wait,
        vendor=implementation.vendor is not None,
        capture=implementation.adapter.capture,
        in_turn=lambda count: bound.in_turn(input_sets(problem, cache_bytes(problem.device), count)),
    )
