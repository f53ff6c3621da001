"""The third call is made again for a while: a race that is wrong in one call of many is found."""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Callable

import numpy as np
import pytest
import torch
from checked_calls import kind, problem, run

from suite.checking.repeats import LEAST_REPEATS, MAX_REPEATS, Duration

Add = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def wrong_in(call: int, calls: list[int]) -> Add:
    def add(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        calls.append(len(calls) + 1)
        result = a + b
        if len(calls) == call:
            result[-8:] = 0
        return result

    return add


def test_a_result_that_is_wrong_in_one_of_many_calls_is_refused() -> None:
    calls: list[int] = []
    assert run(wrong_in(20, calls)).agrees, "three calls are right"
    found = run(wrong_in(20, calls := []), repeats=Duration(60.0))
    assert kind(found) == "value"
    assert "in a later call, with the inputs of the first" in found.reason
    assert found.deterministic == "no"
    assert len(calls) == 3 + MAX_REPEATS


def test_results_that_differ_within_the_bound_are_right_and_not_deterministic() -> None:
    order = torch.Generator().manual_seed(0)

    def product(a: torch.Tensor, b: torch.Tensor, *, precision: str) -> torch.Tensor:
        k = torch.randperm(a.shape[1], generator=order)
        return a[:, k] @ b[k]

    found = run(product, at=problem("matmul", (8, 8, 256)), repeats=Duration(0.01))
    assert found.agrees, found.reason
    assert found.deterministic == "no"


@pytest.mark.parametrize("seconds", [0.0, 0.02])
def test_a_call_that_takes_longer_than_the_time_is_not_repeated(seconds: float) -> None:
    calls: list[int] = []
    add = wrong_in(0, calls)

    def slow(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        time.sleep(0.03)
        return add(a, b)

    assert run(slow, repeats=Duration(seconds)).agrees
    assert len(calls) == 3


def test_a_slow_call_is_repeated_as_far_as_its_own_time_allows_and_the_judged_calls_are_counted() -> None:
    calls: list[int] = []
    add = wrong_in(0, calls)

    def slow(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        time.sleep(0.01)
        return add(a, b)

    found = run(slow, repeats=Duration(0.001, least_s=60.0))
    assert found.agrees, found.reason
    assert found.judged == len(calls) == 3 + LEAST_REPEATS
    few = run(slow, repeats=Duration(0.001, least_s=0.1))
    assert 3 <= few.judged < 3 + LEAST_REPEATS


CHANCE = {
    "torch": lambda: torch.rand(()).item() < 0.5,
    "random": lambda: random.random() < 0.5,
    "numpy": lambda: np.random.rand() < 0.5,
    "generator": lambda: GENERATOR.random() < 0.5,
    "jax": lambda: jax_draw() < 0.5,
    "counter": lambda: next(COUNTER) % 10 == 9,
    "clock": lambda: time.perf_counter_ns() // 1000 % 4 == 0,
}
GENERATOR = np.random.default_rng()
COUNTER = itertools.count()
KEYS = itertools.count(int(time.time()))


def jax_draw() -> float:
    import jax

    return float(jax.random.uniform(jax.random.key(next(KEYS))))


@pytest.mark.parametrize("source", CHANCE)
def test_a_call_that_is_wrong_by_chance_is_refused(source: str) -> None:
    def add(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        result = a + b
        if CHANCE[source]():
            result[0] += 1
        return result

    assert kind(run(add, repeats=Duration(0.0, least_s=60.0))) == "value"


def test_each_result_with_other_bits_is_judged_not_only_the_one_that_differs_most() -> None:
    """One result is far off and within its bound; another is wrong by less, where the bound is narrow."""
    calls = itertools.count()

    def add(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        result, call = a + b, next(calls)
        if call == 7:
            result[1] = torch.nextafter(result[1], torch.tensor(0.0))
        if call == 8:
            result[0] += 1e-4
        return result

    at = problem()
    for operand in (*at.draws[0], *at.draws[1]):
        operand[0], operand[1] = 1e-3, 1e9
    found = run(add, at=at, repeats=Duration(0.0, least_s=60.0))
    assert kind(found) == "value"
    assert "[0]" in found.reason


def test_calls_beyond_the_least_number_end_with_the_time() -> None:
    duration = Duration(0.01, least_s=0.1)
    assert duration.allows(LEAST_REPEATS - 1, 0.05, 0.001)
    assert not duration.allows(LEAST_REPEATS, 0.05, 0.001)
    assert not Duration(0.01).allows(3, 0.01, 0.001)
