"""The third call is made again for a while: a race that is wrong in one call of many is found."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
import torch
from checked_calls import kind, problem, run

from suite.checking.calls import MAX_REPEATS

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
    found = run(wrong_in(20, calls := []), repeat_s=60.0)
    assert kind(found) == "value"
    assert "in a later call, with the inputs of the first" in found.reason
    assert found.deterministic == "no"
    assert len(calls) == 3 + MAX_REPEATS


def test_results_that_differ_within_the_bound_are_right_and_not_deterministic() -> None:
    order = torch.Generator().manual_seed(0)

    def product(a: torch.Tensor, b: torch.Tensor, *, precision: str) -> torch.Tensor:
        k = torch.randperm(a.shape[1], generator=order)
        return a[:, k] @ b[k]

    found = run(product, at=problem("matmul", (8, 8, 256)), repeat_s=0.01)
    assert found.agrees, found.reason
    assert found.deterministic == "no"


@pytest.mark.parametrize("seconds", [0.0, 0.02])
def test_a_call_that_takes_longer_than_the_time_is_not_repeated(seconds: float) -> None:
    calls: list[int] = []
    add = wrong_in(0, calls)

    def slow(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        time.sleep(0.03)
        return add(a, b)

    assert run(slow, repeat_s=seconds).agrees
    assert len(calls) == 3
