"""The choice between overlapped products and one product before one sum."""

from __future__ import annotations

import pytest
import torch

from cuda_ref.matmul._tiles import Problem
from cuda_ref.matmul_reduce_scatter import _plan
from cuda_ref.matmul_reduce_scatter._plan import is_overlapped, overlapped_us, overlaps, whole_first_us


def problem(M: int, N: int, K: int) -> Problem:
    return Problem(M, N, K, False, False, 132)


def test_a_copy_behind_a_product_costs_nothing() -> None:
    assert overlapped_us(2, 50.0, 100.0) == 200.0 + 3.0
    assert overlapped_us(4, 50.0, 100.0) == 400.0 + 3.0
    assert overlapped_us(2, 150.0, 100.0) == 100.0 + 3.0 + 150.0 + 3.0 + 3.0
    assert whole_first_us(3, 3e6, 100.0) == 100.0 + 5.0 + 20.0


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_few_rows_take_one_product_and_many_overlap(ranks: int) -> None:
    assert not overlaps(problem(16, 14336, 4096 // ranks), ranks)
    assert not overlaps(problem(64, 4096, 4096 // ranks), ranks)
    assert overlaps(problem(8192 // ranks, 8192, 8192 // ranks), ranks)


def test_rows_that_begin_inside_a_pack_overlap() -> None:
    assert overlaps(problem(3, 33, 4096), 2)


def test_ranks_with_other_layouts_choose_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen: list[Problem] = []
    monkeypatch.setattr(_plan, "multiprocessors", lambda device: 132)
    monkeypatch.setattr(_plan, "overlaps", lambda share, *rest: chosen.append(share))
    x, w = torch.zeros(8, 64).bfloat16(), torch.zeros(64, 16).bfloat16()
    for a, b in ((x, w), (torch.zeros(8, 67).bfloat16()[:, 3:], torch.zeros(16, 64).bfloat16().t())):
        is_overlapped(a, b, 2)
    assert chosen == [problem(4, 16, 64)] * 2
