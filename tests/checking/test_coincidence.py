"""Whether equal results of two inputs are a chance."""

from __future__ import annotations

import math

import pytest
import torch

from suite.checking.coincidence import differ, is_one_number
from suite.problem.truth import Truth


def truth(*values: float) -> list[Truth]:
    value = torch.tensor(values, dtype=torch.float64)
    return [Truth((slice(0, len(values)),), value, torch.zeros_like(value))]


@pytest.mark.parametrize(
    ("one", "other", "dtype", "expected"),
    [
        ((33280.0,), (33376.0,), "float16", False),  # 3 units in the last place
        ((33280.0,), (33376.0,), "float32", False),
        ((1.0,), (2.5,), "float32", True),
        ((1.0,) * 13, (1.0 + 2.0**-9,) * 13, "float16", True),
        ((1.0,) * 12, (1.0,) * 12, "float16", False),
        ((math.nan, math.inf), (math.nan, math.inf), "float32", False),
        ((math.inf,), (1.0,), "float32", False),
    ],
)
def test_truths_differ_by_the_bits_that_would_have_to_be_equal(
    one: tuple[float, ...], other: tuple[float, ...], dtype: str, expected: bool
) -> None:
    assert differ(truth(*one), truth(*other), dtype) is expected


def test_results_of_one_number_are_told_from_others() -> None:
    assert is_one_number(torch.tensor([math.nan, 0.0, 0.0]).nan_to_num())
    assert is_one_number(torch.full((3, 2), math.nan))
    assert is_one_number(torch.empty(0))
    assert not is_one_number(torch.tensor([0.0, 0.0, 1.0]))
