"""Sets of inputs over which calls rotate: more than twice the cache, in memory of their own."""

from __future__ import annotations

import pytest
import torch

from suite import ops
from suite.checking.input_sets import MAX_SETS, input_sets, sets_needed
from suite.checking.problem import Problem
from suite.implementations import lookup
from suite.implementations.bound_call import bind

CASE = ops.get("vector_add").case((1000,))


@pytest.mark.parametrize(("inputs", "cache"), [(8, 100), (99, 50), (100, 50), (101, 50), (1, 10), (10**9, 5 * 10**7)])
def test_sets_of_inputs_exceed_twice_the_cache_and_are_as_few_as_do(inputs: int, cache: int) -> None:
    count = sets_needed(inputs, cache)
    assert count * inputs > 2 * cache >= (count - 1) * inputs


def test_very_many_sets_are_not_made() -> None:
    assert sets_needed(1, 10**8) == MAX_SETS
    assert sets_needed(0, 10**8) == MAX_SETS


def test_sets_have_both_draws_in_turn_and_memory_of_their_own() -> None:
    problem = Problem(CASE, 0, torch.device("cpu"))
    cache = 2 * sum(each.nbytes for each in problem.draws[0])
    sets = input_sets(problem, cache)
    assert [each[0].equal(problem.draws[i % 2][0]) for i, each in enumerate(sets)] == [True] * 5
    assert len({each[0].data_ptr() for each in sets}) == 5
    assert len(input_sets(problem, cache, 3)) == 3


@pytest.mark.parametrize("name", ["torch", "numpy", "jax"])
def test_calls_in_turn_take_one_set_after_the_other(name: str) -> None:
    problem = Problem(CASE, 0, torch.device("cpu"))
    bound = bind(lookup.find(CASE, name), problem.buffers, problem.op.arguments(CASE))
    issue, adapter = bound.in_turn(input_sets(problem, 10**6, 3)), bound.implementation.adapter
    for i in range(6):
        result = issue()
        adapter.wait(result)
        a, b = problem.draws[i % 3 % 2]
        assert torch.allclose(adapter.to_torch(result), a + b)
