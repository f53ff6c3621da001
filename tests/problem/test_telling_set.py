"""The telling cases of each operation: what its declarations lead to."""

from __future__ import annotations

import math
from typing import Any

import pytest
from judging import CPU

from suite import ops
from suite.checking.problem import Problem
from suite.numerics.formats import is_narrow
from suite.problem import specials
from suite.problem.accepted_cases import added_operands

LEFT_OUT = {"lstm": {"saturated"}}
"""Telling cases that are none in 16 bits, by operation."""


@pytest.mark.parametrize("name", ops.names())
def test_every_operation_has_small_cases_with_names_of_their_own(name: str) -> None:
    op = ops.get(name)
    names = [each.name for each in op.all_telling]
    usual = [each for each in op.all_telling if not added_operands(op, op.case(each.shape, **each.options))]
    assert 20 <= len(usual) <= 170
    assert len(set(names)) == len(names) <= len(usual) + 96
    for dtype in op.dtypes:
        for precision in op.precisions(dtype):
            cases = op.telling_cases(dtype, precision)
            left_out = {"exact_sums", "exact_sums_odd"} | (LEFT_OUT.get(name, set()) if is_narrow(dtype) else set())
            assert set(names) - set(cases) <= left_out, "a family of float8, or a case of another dtype"
            assert all(math.prod(op.output_shape(case)) <= 2**20 for case in cases.values())
            assert all((case.dtype, case.precision) == (dtype, precision) for case in cases.values())
    assert all(dict(zip(op.dims, each.shape, strict=True)) for each in op.all_telling)


@pytest.mark.parametrize("name", ops.names())
def test_every_operand_has_special_numbers_and_far_offsets_and_every_result_many_elements(name: str) -> None:
    op = ops.get(name)
    present = {each.inputs for each in op.all_telling}
    left_out = {
        special
        for special in specials.names(9)
        if {special, f"{specials.kind_of(special)}@"} & set(op.telling_left_out)
    }
    operands = len(op.operands(op.case(op.usual_shape)))
    assert set(specials.names(operands)) <= present | left_out
    placed = [each.inputs.split("+")[-1].split("/") for each in op.all_telling]
    assert all(any("stepped" in each[position : position + 1] for each in placed) for position in range(operands))
    shapes = [op.output_shapes(op.case(each.shape, **each.options)) for each in op.all_telling]
    assert all(max(map(math.prod, result)) > 2**16 for result in zip(*shapes, strict=True) if result[0])


@pytest.mark.parametrize(
    ("name", "options", "position", "inputs"),
    [
        ("int4_matmul", {"zeros": True}, 3, {"repeated0", "repeated1", "misaligned", "far0", "far1"}),
        ("lstm", {"layers": "2"}, 6, {"repeated2", "misaligned", "far0", "nan@6", "subnormal@6"}),
    ],
)
def test_operands_of_an_option_have_cases_of_their_own(
    name: str, options: dict[str, Any], position: int, inputs: set[str]
) -> None:
    alike = [each.inputs for each in ops.get(name).all_telling if options.items() <= each.options.items()]
    words = [each.split("/") for each in alike]
    present = {each[position] for each in words if len(each) > position} | {each[0] for each in words if len(each) == 1}
    assert inputs <= present


@pytest.mark.parametrize("name", ops.names())
def test_each_value_of_an_option_has_repeated_operands(name: str) -> None:
    op = ops.get(name)
    repeated = [each.options for each in op.all_telling if "repeated" in each.inputs]
    choices = [{option.name: value} for option in op.options if not option.beyond for value in option.values[1:]]
    assert all(any(chosen.items() <= options.items() for options in repeated) for chosen in choices)


@pytest.mark.parametrize("name", ["vector_add", "matmul", "lstm", "conv2d", "cumsum", "grouped_matmul", "top_k"])
def test_each_dimension_has_a_size_that_is_a_multiple_of_4_and_not_of_8(name: str) -> None:
    op = ops.get(name)
    shapes = [dict(zip(op.dims, each.shape, strict=True)) for each in op.all_telling]
    assert all(
        any(shape[dim] % 8 == 4 for shape in shapes) for dim in op.dims if dim not in ("R", "S", "stride", "padding")
    )


@pytest.mark.parametrize("name", ["vector_add", "softmax", "matmul", "linear_sigmoid_grad", "cross_entropy"])
def test_each_long_dimension_has_multiples_of_each_small_power_of_two_and_of_none_larger(name: str) -> None:
    op = ops.get(name)
    for position in range(len(op.dims)):
        sizes = {each.shape[position] for each in op.all_telling if each.shape[position] > 64}
        assert {size & -size for size in sizes} >= {1, 2, 4, 8, 16, 32}
        assert any(64 < size < 128 for size in sizes)


@pytest.mark.parametrize("name", ops.alone())
def test_rows_that_permit_wide_loads_are_not_always_dense(name: str) -> None:
    op = ops.get(name)
    halved = [op.operands(op.case(each.shape))[0] for each in op.all_telling if each.inputs == "halved"]
    assert any(first[-1] % 8 == 0 for first in halved)


@pytest.mark.parametrize(
    ("name", "position", "options"),
    [
        ("int4_matmul", 3, {"zeros": True}),
        ("block_scaled_matmul", 1, {}),
        ("lstm", 1, {}),
        ("quantize", -1, {"group": "128"}),
    ],
)
def test_the_last_two_axes_of_each_array_are_equal_in_some_case(
    name: str, position: int, options: dict[str, Any]
) -> None:
    op = ops.get(name)
    alike = [op.case(each.shape, **each.options) for each in op.all_telling if options.items() <= each.options.items()]
    arrays = [(op.operands(each) if position >= 0 else op.output_shapes(each))[position] for each in alike]
    assert any(array[-1] == array[-2] > 2 for array in arrays)


def test_a_long_dimension_meets_every_layout_and_option() -> None:
    long = [each for each in ops.get("lstm").all_telling if 131 in each.shape]
    placed = {each.inputs.split("/")[2] for each in long if "/" in each.inputs}
    assert placed >= {"transposed", "padded", "stepped", "misaligned"}
    assert {each.options.get("layers", "1") for each in long} == {"1", "2", "3", "4"}


@pytest.mark.parametrize(
    ("name", "result", "axis", "options"),
    [
        ("quantize", 1, 1, {"group": "128"}),
        ("quantize", 1, 0, {"group": "128x128"}),
        ("rope", 0, 0, {"direction": "inverse"}),
        ("attention_grad", 1, 1, {"causal": True}),
    ],
)
def test_axes_are_longer_than_a_tile_with_each_value_of_an_option(
    name: str, result: int, axis: int, options: dict[str, Any]
) -> None:
    op = ops.get(name)
    alike = [each for each in op.all_telling if options.items() <= each.options.items()]
    shapes = [op.output_shapes(op.case(each.shape, **each.options)) for each in alike]
    assert max(shape[result][axis] for shape in shapes) > 64


@pytest.mark.parametrize("name", ["softmax", "sum", "matmul", "attention", "quantize", "cross_entropy"])
def test_numbers_of_a_family_are_also_at_odd_sizes(name: str) -> None:
    op = ops.get(name)
    families = set(op.families) & {"below", "largest", "cancellation", "large_logits", "shifted"} - set(
        op.telling_left_out
    )
    odd = {each.inputs for each in op.all_telling if each.shape == op.usual_shape}
    assert families
    assert odd >= families


@pytest.mark.parametrize("name", ["attention", "multi_head_attention", "rope", "lstm"])
def test_a_long_axis_meets_each_option_beside_others_that_are_not_1(name: str) -> None:
    op = ops.get(name)
    option = {"rope": "layout", "lstm": "layers"}.get(name, "causal")
    cases = [op.case(each.shape, **each.options) for each in op.all_telling]
    values = next(each.values for each in op.options if each.name == option)
    for value in values:
        alike = [case for case in cases if (case.option(option) or values[0]) == value]
        assert any(case["B"] > 64 and min(case.shape) > 1 for case in alike)


def test_a_mask_meets_tails_of_both_axes_beyond_a_tile() -> None:
    """Several queries of the last tile may see a key too many only if the last tile of keys is not full either."""
    op = ops.get("attention")
    cases = [op.case(each.shape, **each.options) for each in op.all_telling if each.options == {"causal": True}]
    sizes = [(case["S_q"], case["S_k"]) for case in cases]
    assert any(keys > queries > 64 and queries % 64 > 1 and keys % 64 for queries, keys in sizes)


@pytest.mark.parametrize(
    ("name", "inputs"),
    [(name, inputs) for name in ops.alone() for inputs, family in ops.get(name).families.items() if family.arguments],
)
def test_an_argument_of_the_covering_set_leaves_results_that_tell(name: str, inputs: str) -> None:
    op = ops.get(name)
    truth = Problem(op.case(op.usual_shape, inputs=inputs), 0, CPU).truth(0)
    assert all(each.value.unique().numel() > 1 for each in truth)


@pytest.mark.parametrize("name", ops.names())
def test_the_suites_own_implementations_run_every_level_once_and_each_case_in_one_dtype(name: str) -> None:
    op = ops.get(name)
    shares = [set(op.telling_cases(dtype, op.precisions(dtype)[0], first=True)) for dtype in op.dtypes]
    assert sum(map(len, shares)) == len(set().union(*shares))
    first = {each.name for each in op.all_telling if each.first}
    assert set().union(*shares) >= first - {"exact_sums"} - LEFT_OUT.get(name, set())
    assert sum(map(len, shares)) < 0.6 * len(op.all_telling)


@pytest.mark.parametrize("name", sorted(set(ops.alone()) - {"paged_attention", "multi_head_attention"}))
def test_some_case_has_more_rows_than_axis_y_of_a_grid_has_blocks(name: str) -> None:
    """The truths of the operations left out take one sequence after the other: too long for so many."""
    op = ops.get(name)
    cases = [op.case(each.shape, **each.options) for each in (*op.all_telling, *op.large)]
    shapes = [shape for case in cases for shape in op.output_shapes(case)]
    assert max(len(shape) for shape in shapes) < 2 or max(math.prod(shape[:-1]) for shape in shapes) > 65_535


@pytest.mark.parametrize("name", ops.alone())
def test_every_argument_has_two_values_or_is_left_out(name: str) -> None:
    """A kernel that ignores an argument with one value is never present."""
    op = ops.get(name)
    cases = [op.case(each.shape, inputs=each.inputs, **each.options) for each in op.all_telling]
    given = [op.arguments(case) for case in (*op.default_cases("cpu"), *cases)]
    for argument in {argument for each in given for argument in each}:
        assert len({str(each.get(argument)) for each in given}) > 1 or argument == "precision", argument


def test_float8_has_the_cases_that_it_can_represent() -> None:
    cases = ops.get("matmul").telling_cases("float8_e4m3fn", "fast")
    assert "many_rows" in cases
    assert "infinity" not in cases
