"""Several results as one vector."""

from __future__ import annotations

import torch

from suite.problem import outputs

SHAPES = ((2, 3), (0, 4), (5,))


def test_results_lie_one_after_the_other() -> None:
    assert outputs.flat_shape(SHAPES) == (11,)
    assert outputs.starts(SHAPES) == (0, 6, 6)
    parts = [torch.arange(6.0).view(2, 3), torch.empty(0, 4), torch.arange(6.0, 11.0)]
    assert outputs.joined(parts).tolist() == list(range(11))


def test_a_single_result_is_itself() -> None:
    alone = torch.zeros(2, 3)
    assert outputs.joined([alone]) is alone


def test_a_position_names_the_result() -> None:
    names = ("a", "b", "c")
    assert outputs.located((4,), names, SHAPES) == "a[1, 1]"
    assert outputs.located((6,), names, SHAPES) == "c[0]"
    assert outputs.located((1, 2)) == "[1, 2]"
