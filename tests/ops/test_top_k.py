"""top_k: equal numbers may come in any order; every other difference of values or indices is wrong."""

from __future__ import annotations

import pytest
import torch
from judging import CPU, judge_output

from cuda_ref.top_k import top_k as radix
from cuda_ref.top_k.maxima import top_k as maxima
from suite import ops
from suite.problem.outputs import joined
from torch_impls.top_k import top_k as torch_line
from triton_kernels.top_k import top_k as triton
from triton_kernels.top_k.bitonic import top_k as bitonic

OP = ops.get("top_k")


def verdict(x: torch.Tensor, values: list[float], indices: list[int], monkeypatch: pytest.MonkeyPatch):
    case = OP.case((1, x.shape[1], len(values)))
    monkeypatch.setattr(type(OP), "make_inputs", lambda *_: (x,))
    return judge_output(OP, case, joined([torch.tensor([values]), torch.tensor([indices])]))


@pytest.mark.parametrize(
    ("values", "indices", "agrees"),
    [
        ((3.0, 2.0, 2.0), (4, 1, 2), True),
        ((3.0, 2.0, 2.0), (4, 3, 1), True),  # the other two of three equal numbers
        ((3.0, 2.0, 2.0), (4, 1, 1), False),  # twice
        ((3.0, 2.0, 2.0), (4, 1, 0), False),  # the place of another number
        ((3.0, 2.0, 2.0), (4, 1, 5), False),  # beyond the row
        ((3.0, 2.0, 2.0), (4, 1, -2), False),
        ((2.0, 2.0, 3.0), (1, 2, 4), False),  # ascending
        ((3.0, 2.0, 1.0), (4, 1, 0), False),  # the set of the numbers
        ((3.0, 2.0, 2.0000002), (4, 1, 2), False),  # values are exact
    ],
)
def test_an_index_is_right_if_its_number_is_and_if_it_occurs_once(
    values: tuple[float, ...], indices: tuple[int, ...], agrees: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = torch.tensor([[1.0, 2.0, 2.0, 2.0, 3.0]])
    assert verdict(x, list(values), list(indices), monkeypatch).agrees is agrees


def test_a_nan_is_the_largest_and_its_index_may_occur_once(monkeypatch: pytest.MonkeyPatch) -> None:
    nan, inf = torch.nan, torch.inf
    x = torch.tensor([[nan, inf, nan, -inf]])
    assert verdict(x, [nan, nan, inf], [2, 0, 1], monkeypatch).agrees
    assert not verdict(x, [nan, nan, inf], [2, 2, 1], monkeypatch).agrees
    assert not verdict(x, [nan, nan, inf], [2, 1, 1], monkeypatch).agrees
    assert not verdict(x, [nan, inf, inf], [2, 1, 1], monkeypatch).agrees


@pytest.mark.parametrize("line", [radix, maxima, triton, bitonic, torch_line], ids=lambda each: each.__module__)
def test_a_nan_with_a_sign_is_the_largest_too(line, device: str) -> None:
    x = torch.tensor([[1.0, torch.inf, -torch.nan, -3.0]], device=device)
    assert x.signbit()[0, 2]
    assert [each.tolist() for each in line(x, k=3)[1]] == [[2, 1, 0]]


def test_zeros_of_either_sign_are_equal(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.tensor([[-0.0, 0.0, -1.0]])
    for values, indices in (([0.0, -0.0], [1, 0]), ([-0.0, 0.0], [0, 1]), ([0.0, 0.0], [0, 1])):
        assert verdict(x, values, indices, monkeypatch).agrees


def test_the_reason_names_the_number_that_an_index_stands_for(monkeypatch: pytest.MonkeyPatch) -> None:
    found = verdict(torch.tensor([[1.0, 2.0, 3.0]]), [3.0, 2.0], [2, 0], monkeypatch)
    assert found.reason == "value: at [3] got 0, expected an element that stands for 2; it stands for 1"


@pytest.mark.parametrize("index", [-1, 3, 2])
def test_the_reason_says_that_an_index_is_out_of_range_or_given_twice(
    index: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = verdict(torch.tensor([[1.0, 2.0, 3.0]]), [3.0, 2.0], [2, index], monkeypatch)
    assert found.reason.endswith("stands for nan, or for none: it is out of range, or given twice")


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("shape", [(1, 20_001, 256), (2, 9_000, 40), (3, 70, 70)])
def test_parts_of_a_row_are_merged_in_several_launches(shape: tuple[int, int, int], dtype: str) -> None:
    """The first keeps 3 parts of 256 of the row; a row of one value is the worst case of the bound."""
    for inputs in ("normal", "equal", "ascending"):
        case = OP.case(shape, dtype, inputs=inputs)
        (x,) = OP.make_inputs(case, 0, CPU)
        found = maxima(x, k=shape[2])
        assert judge_output(OP, case, joined(found)).agrees
        assert all(torch.equal(a, b) for a, b in zip(found, maxima(x.clone(), k=shape[2]), strict=True))
