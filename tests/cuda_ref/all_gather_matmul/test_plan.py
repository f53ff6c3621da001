"""The choice between overlapped products and a gather before one product."""

from __future__ import annotations

import pytest

from cuda_ref.all_gather_matmul._plan import gathered_us, overlapped_us, overlaps
from cuda_ref.matmul._tiles import Problem


def problem(M: int, N: int, K: int) -> Problem:
    return Problem(M, N, K, False, False, 132)


def test_a_copy_behind_a_product_costs_a_meeting() -> None:
    assert overlapped_us(2, 50.0, 100.0) == 203.0
    assert overlapped_us(4, 50.0, 100.0) == 409.0
    assert overlapped_us(2, 150.0, 100.0) == 3.0 + 3.0 + 150.0 + 100.0
    assert gathered_us(3, 3e6, 100.0) == 5.0 + 20.0 + 100.0


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_few_rows_are_gathered_and_many_overlap(ranks: int) -> None:
    assert not overlaps(problem(16, 14336, 4096), ranks)
    assert not overlaps(problem(64, 8192, 8192), ranks)
    assert overlaps(problem(4096, 8192, 8192), ranks)
    choices = [overlaps(problem(2**power, 8192, 8192), ranks) for power in range(4, 14)]
    assert choices == sorted(choices)


def test_results_that_begin_at_odd_addresses_are_gathered() -> None:
    assert not overlaps(problem(4097, 8191, 8192), 2)
