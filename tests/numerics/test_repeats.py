"""Equal terms of a sum: how many there are, and what their roundings add up to."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from thinning import chosen_by

from suite import frameworks, ops
from suite.checking.check import judge_draw
from suite.checking.problem import Problem
from suite.hardware.device import Device
from suite.implementations import builtin
from suite.numerics.repeats import repeats
from suite.problem import layouts, outputs

CPU = torch.device("cpu")
Change = Callable[[torch.Tensor], torch.Tensor]


def normals(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("count", [10, 961, 5000, 70_000])
def test_terms_of_random_signs_are_equal_by_chance_only(count: int, dtype: torch.dtype) -> None:
    assert torch.equal(repeats(normals(8, count).to(dtype)), torch.ones(8, 1, dtype=torch.float64))


@pytest.mark.parametrize("count", [10, 961, 70_000])
def test_constant_terms_are_all_equal(count: int) -> None:
    found = repeats(normals(3, 1).expand(3, count))
    torch.testing.assert_close(found, torch.full((3, 1), float(count), dtype=torch.float64))


@pytest.mark.parametrize("change", [lambda x: x, lambda x: x.transpose(1, 2)], ids=["in turn", "in a row"])
def test_repeated_terms_count_in_any_order(change: Change) -> None:
    found = repeats(change(normals(4, 1, 50).expand(4, 20, 50)).reshape(4, -1))
    assert 18 <= float(found.min()) <= float(found.max()) <= 22


def test_opposite_terms_have_opposite_errors() -> None:
    x = normals(1, 1).expand(1, 100)
    assert float(repeats(torch.cat((x, -x), dim=1))) == 1.0


def test_samples_stand_for_all_terms_and_nan_for_none() -> None:
    assert float(repeats(torch.ones(1, 100), 10_000)) == pytest.approx(10_000, rel=1e-9)
    assert float(repeats(torch.full((1, 100), torch.nan))) == 1.0
    assert repeats(torch.ones(3, 0)).tolist() == [[1.0]] * 3


def worst(operation: str, inputs: str, seeds: range, add: Change | None = None, **options: str) -> float:
    """The largest ratio of the library lines, or of `add`, on the usual shape."""
    op, device = ops.get(operation), Device("cpu")
    found = []
    for line in builtin.implementations(operation):
        if (
            line.framework not in ("torch", "numpy", "jax")
            or line.peer is not None
            or line.obstacle(device) is not None
        ):
            continue
        frameworks.get(line.framework).prepare(device)
        case = op.case(op.usual_shape, inputs=inputs, **options)
        for seed in seeds:
            problem = Problem(case, seed, CPU)
            arrays = tuple(map(line.adapter.to_native, problem.draws[0]))
            try:
                result = line.function()(*arrays, **op.arguments(case)) if add is None else add(problem.draws[0][0])
            except NotImplementedError:
                continue
            results = result if isinstance(result, tuple) else (result,)
            output = result if add else outputs.joined([line.adapter.to_torch(each).detach() for each in results])
            assert isinstance(output, torch.Tensor)
            found.append(judge_draw(output, problem, 0).error_ratio)
    return max(found)


REPEATED = [name for name in ops.alone() if name not in ("attention", "attention_grad")]


@pytest.mark.parametrize("axis", ["all", "0", "1"])
@pytest.mark.parametrize("inputs", ["repeated0", "repeated1"])
def test_sums_of_repeated_terms_are_right_in_any_order(axis: str, inputs: str) -> None:
    assert worst("sum", inputs, range(10), axis=axis) < 0.7


def test_a_sum_one_by_one_of_repeated_terms_is_right_and_one_in_16_bits_is_not() -> None:
    one_by_one = lambda x: x.reshape(-1).cumsum(0, dtype=torch.float32)[-1]  # noqa: E731
    assert worst("sum", "repeated1", range(10), one_by_one) < 0.7
    assert worst("sum", "repeated1", range(3), lambda x: x.half().sum().float()) > 1.0


@pytest.mark.parametrize("name", chosen_by(REPEATED, lambda name: {ops.get(name).group}, str))
def test_libraries_are_right_with_any_one_operand_repeated(name: str) -> None:
    op = ops.get(name)
    axes = [len(shape) for shape in op.operands(op.case(op.usual_shape))]
    options = {option.name: option.values[-1] for option in op.options if option.every}
    ratios = {inputs: worst(name, inputs, range(1, 2), **options) for inputs in layouts.repetitions(axes)}
    assert max(ratios.values()) < 0.7, ratios


@pytest.mark.parametrize("name", ["matmul", "linear_sigmoid", "linear_sigmoid_grad", "conv2d", "lstm"])
def test_libraries_are_right_with_operands_repeated_along_an_axis_that_they_share(name: str) -> None:
    op = ops.get(name)
    shared = [each.inputs for each in op.all_telling if each.inputs.count(layouts.REPEATED) > 1]
    assert shared
    ratios = {inputs: worst(name, inputs, range(2)) for inputs in shared}
    assert max(ratios.values()) < 0.75, ratios


@pytest.mark.parametrize("terms", [31, 1000, 4096])
def test_a_product_of_equal_terms_is_right_in_any_order(terms: int) -> None:
    op = ops.get("matmul")
    case = op.case((16, 16, terms), inputs="repeated1/repeated0")
    problem = Problem(case, 0, CPU)
    a, b = problem.draws[0]
    products = a[:, None, :] * b.T[None, :, :]
    for added in (products.cumsum(2)[..., -1], products.view(16, 16, -1).sum(2), a @ b):
        assert judge_draw(added.contiguous(), problem, 0).error_ratio < 0.7
    assert judge_draw((a.half() @ b.half()).float(), problem, 0).error_ratio > 1.0
