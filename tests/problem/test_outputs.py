"""Several results as one vector."""

from __future__ import annotations

import math

import pytest
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


@pytest.mark.parametrize("dtypes", [("float32",), ("bfloat16", "bfloat16"), ("int8", "float32"), ("bool", "int64")])
def test_results_are_copied_into_memory_of_the_joined_form(dtypes: tuple[str, ...]) -> None:
    shapes = [(3, 4), (5,)][: len(dtypes)]
    results = [
        (torch.arange(math.prod(shape)) % 3).to(getattr(torch, dtype)).view(shape)
        for shape, dtype in zip(shapes, dtypes, strict=True)
    ]
    expected = outputs.joined(results)
    to = torch.empty_like(expected)
    outputs.join_into(to, results)
    assert torch.equal(to, expected)


def test_a_result_in_another_order_is_copied_in_its_values() -> None:
    given = torch.randn(4, 6).t()
    to = torch.empty(6, 4)
    outputs.join_into(to, [given])
    assert torch.equal(to, given)
