"""Layouts: each kind keeps the values and takes the place in memory that its name says."""

from __future__ import annotations

import math

import pytest
import torch
from judging import CPU

from suite import ops
from suite.core.errors import UsageError
from suite.problem import layouts


@pytest.mark.parametrize("kind", layouts.KINDS)
@pytest.mark.parametrize("shape", [(5,), (4, 6), (2, 3, 4), (2, 3, 4, 5), (0, 3)])
def test_a_kind_keeps_shape_and_values(kind: str, shape: tuple[int, ...]) -> None:
    operand = torch.randn(shape)
    placed = layouts.place(kind)(operand, 0)
    assert placed.shape == operand.shape
    assert layouts.stored(kind)(shape, 0) <= math.prod(shape)
    if not kind.startswith(layouts.REPEATED):
        assert torch.equal(placed, operand)


def test_kinds_have_the_strides_that_they_say() -> None:
    operand = torch.randn(4, 6)
    strides = {kind: tuple(layouts.place(kind)(operand, 0).stride()) for kind in layouts.KINDS}
    assert strides["transposed"] == strides["reversed"] == (1, 4)
    assert strides["padded"] == (7, 1)
    assert strides["halved"] == (12, 1)
    assert strides["stepped"] == (43_704, 3)
    assert strides["repeated"] == (0, 0)
    assert strides["repeated0"] == (0, 1)
    assert strides["repeated1"] == (6, 0)
    assert layouts.place("misaligned")(operand, 0).storage_offset() == 1
    assert layouts.stored("dense/repeated1")((4, 6), 1) == 4
    assert layouts.stored("repeated")((4, 6), 0) == 1


def test_in_turns_each_operand_takes_every_kind_and_no_two_the_same() -> None:
    found = [each.split("/") for each in layouts.rotations([2, 2])]
    kinds = {"transposed", "padded", "stepped", "misaligned", "dense"}
    assert {each[0] for each in found} == {each[1] for each in found} == kinds
    assert all(one != other for one, other in found)


def test_each_operand_is_repeated_along_each_axis() -> None:
    assert layouts.repetitions([2, 1]) == ["repeated0/dense", "repeated1/dense", "dense/repeated0"]


def test_names_of_inputs_combine_numbers_arguments_and_layouts() -> None:
    op = ops.get("layer_norm")
    case = op.case((9, 136), inputs="eps+nan+transposed/dense/stepped")
    x, weight, bias = op.make_inputs(case, 0, CPU)
    assert (x.stride(), weight.stride(), bias.stride()) == ((1, 9), (1,), (971,))
    assert int(x.isnan().sum()) == 1
    assert op.arguments(case)["eps"] != op.arguments(op.case((9, 136)))["eps"]
    with pytest.raises(UsageError, match=r"no inputs .nan\+sideways.; valid are normal, .*layouts of dense"):
        op.family("nan+sideways")
