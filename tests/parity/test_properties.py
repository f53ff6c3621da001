"""Random shapes, strides, dtypes, arithmetics and masks: every implementation agrees with float64 on all of them."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import pytest
import torch
from hypothesis import HealthCheck, event, example, given, settings
from hypothesis import strategies as st
from known_limits import KNOWN
from thinning import THOROUGH, covering_parts

from suite import ops
from suite.checking.judge import judge
from suite.hardware.device import Device
from suite.implementations import builtin
from suite.implementations.implementation import Implementation
from suite.numerics.formats import is_integer
from suite.problem.case import Case
from suite.problem.operation import Operation
from suite.problem.outputs import joined

LIMITS = settings(
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)
EXAMPLES = {"numpy": 30, "torch": 30, "cuda": 20, "triton": 10, "jax": 6}
"""Examples of each implementation, by framework: XLA compiles each, Triton is interpreted, CUDA emulated."""
SHARE = 10
"""In `make test` one of ten examples is drawn, and two at least, for one implementation of each operation in each
framework. The examples are the same at each run."""
LONGEST = 70


@dataclass(frozen=True)
class Axis:
    """An axis in memory: elements before the first, from one to the next (0: one repeated), and after the last."""

    before: int
    step: int
    after: int

    def span(self, size: int) -> int:
        return self.before + max(1, size * self.step) + self.after

    def within(self, size: int) -> slice:
        return slice(self.before, self.before + max(1, size * self.step), max(1, self.step))


@dataclass(frozen=True)
class Layout:
    """A view: the axes from the outermost in memory to the innermost, and how each is stored."""

    order: tuple[int, ...]
    axes: tuple[Axis, ...]

    def lay(self, values: torch.Tensor) -> torch.Tensor:
        """The values, in such a view of an array of NaN or of the largest integers. A repeated axis repeats its first
        slice."""
        shape = values.shape
        if 0 in shape:
            return values
        spans = [axis.span(size) for axis, size in zip(self.axes, shape, strict=True)]
        beside = math.nan if values.is_floating_point() else torch.iinfo(values.dtype).max
        around = values.new_full([spans[axis] for axis in self.order], beside)
        around = around.permute([self.order.index(axis) for axis in range(values.ndim)])
        within = around[tuple(axis.within(size) for axis, size in zip(self.axes, shape, strict=True))]
        return within.copy_(values[tuple(slice(0, size) for size in within.shape)]).expand(shape)


def axes(steps: tuple[int, ...]) -> st.SearchStrategy[Axis]:
    return st.builds(Axis, st.sampled_from((0, 0, 1, 3)), st.sampled_from(steps), st.sampled_from((0, 0, 1, 8)))


sizes = st.one_of(st.integers(0, LONGEST), st.sampled_from((1, 16, 32, 33, 63, 64, 65)))


def layouts(ndim: int, *, repeats: bool = True) -> st.SearchStrategy[Layout]:
    """Row-major without gaps, or anything; with `repeats` also axes of equal values."""
    steps = (1, 1, 1, 2, 3, *([0] * repeats))
    plain = Layout(tuple(range(ndim)), (Axis(0, 1, 0),) * ndim)
    orders = st.permutations(range(ndim)).map(tuple)
    return st.one_of(st.just(plain), st.builds(Layout, orders, st.tuples(*[axes(steps)] * ndim)))


@st.composite
def cases(draw: st.DrawFn, op: Operation) -> Case:
    dtype = draw(st.sampled_from(sorted(op.dtypes)))
    precision = draw(st.sampled_from(op.precisions(dtype)))
    shape = op.random_shape(lambda: draw(sizes))
    return op.case(shape, dtype, precision, **draw(st.sampled_from(op.option_combinations(dtype, {}))))


@st.composite
def problems(draw: st.DrawFn, op: Operation) -> tuple[Case, tuple[Layout, ...], int]:
    case = draw(cases(op))
    operands = zip(op.operands(case), op.operand_dtypes(case), strict=True)  # equal sizes need not add up to the rows
    views = tuple(draw(layouts(len(shape), repeats=not is_integer(dtype))) for shape, dtype in operands)
    return case, views, draw(st.integers(0, 2**31))


def implementations() -> list[object]:
    found = [each for name in ops.alone() for each in builtin.implementations(name) if each.peer is None]
    return [pytest.param(each, id=f"{each.operation}-{each.name}") for each in found]


def shares() -> list[object]:
    """Each implementation with all its examples, and those of `make test` with a share of them."""
    found = [each for name in ops.alone() for each in builtin.implementations(name) if each.peer is None]
    names = [(each.operation, each.framework, each.name) for each in found]
    kept = names if os.environ.get("SUITE_TEST_GPU") else covering_parts(names, lambda name: {name[:2]})
    ids = [f"{each.operation}-{each.name}" for each in found]
    few = [
        pytest.param(each, SHARE, id=f"{id_}-{SHARE}")
        for each, id_, name in zip(found, ids, names, strict=True)
        if name in kept
    ]
    return [
        *few,
        *(pytest.param(each, 1, id=f"{id_}-all", marks=THOROUGH) for each, id_ in zip(found, ids, strict=True)),
    ]


def check_agreement(
    implementation: Implementation, case: Case, inputs: tuple[torch.Tensor, ...], device: torch.device
) -> None:
    """Call the implementation with views as they are, and judge the result. It may refuse by NotImplementedError."""
    op = ops.get(case.operation)
    function: Callable[..., object] = getattr(implementation.load(), case.operation)
    before = [x.clone() for x in inputs]
    native = [implementation.adapter.to_native(x) for x in inputs]
    call = partial(function, *native, **op.arguments(case))
    try:
        result = implementation.adapter.poisoned(call, op.output_shapes(case), op.output_dtypes(case), device)
    except NotImplementedError:
        event("refused")
        return
    implementation.adapter.wait(result)
    outputs = [implementation.adapter.to_torch(each) for each in (result if op.outputs else [result])]
    assert all(output.is_contiguous() for output in outputs)
    output = joined(outputs)
    verdict = judge(output, op.truth(inputs, case), shape=op.output_shape(case), dtype=op.output_dtype(case))
    assert verdict.agrees, f"{case.label} {case.dtype} {case.precision}: {verdict.reason}"
    assert all(torch.equal(x, y) for x, y in zip(before, inputs, strict=True)), "an input was changed"


@pytest.mark.parametrize(("implementation", "share"), shares())
def test_agrees_on_any_shape_and_strides(implementation: Implementation, where: Device, share: int) -> None:
    obstacle = implementation.obstacle(where)
    if obstacle is not None:
        pytest.skip(f"{obstacle[0]}: {obstacle[1]}")
    op, device = ops.get(implementation.operation), torch.device(where.type)
    count = EXAMPLES.get(implementation.framework, 5) // max(1, len(op.outputs))  # a result costs as much as a call
    count = 3 if implementation.framework == "triton" and where.type == "cuda" else max(2, count // share)

    @settings(LIMITS, max_examples=count)
    @given(problems(op))
    def any_problem(problem: tuple[Case, tuple[Layout, ...], int]) -> None:
        case, views, seed = problem
        dtypes, reason = KNOWN.get((where.type, op.name, implementation.name, "strided"), ((), ""))
        if case.dtype in dtypes and any(axis != Axis(0, 1, 0) for view in views for axis in view.axes):
            event(reason)
            return
        drawn = op.make_inputs(case, seed, device)
        check_agreement(implementation, case, tuple(view.lay(x) for view, x in zip(views, drawn, strict=True)), device)

    any_problem()


@settings(LIMITS, max_examples=100)
@given(st.data())
@example(None)
def test_a_layout_has_the_values_it_was_given(data: st.DataObject | None) -> None:
    if data is None:
        shape, view = (2, 3), Layout((1, 0), (Axis(1, 2, 1), Axis(0, 1, 0)))
    else:
        shape = tuple(data.draw(st.lists(st.integers(0, 5), min_size=1, max_size=4)))
        view = data.draw(layouts(len(shape)))
    values = torch.arange(float(math.prod(shape))).reshape(shape)
    laid = view.lay(values)
    expected = values
    for axis, how in enumerate(view.axes):
        if how.step == 0 and 0 not in shape:
            expected = expected.narrow(axis, 0, 1).expand(shape)
    assert torch.equal(laid, expected)


@pytest.mark.parametrize("implementation", [each for each in implementations() if "lstm" in each.id])
def test_no_steps_give_the_state_without_its_strides(implementation: Implementation, where: Device) -> None:
    """A state of transposed views is a result of row-major arrays."""
    obstacle = implementation.obstacle(where)
    if obstacle is not None:
        pytest.skip(f"{obstacle[0]}: {obstacle[1]}")
    op, device = ops.get("lstm"), torch.device(where.type)
    case = op.case((0, 2, 3, 2), "float32")
    *given, h0, c0 = op.make_inputs(case, 0, device)
    check_agreement(implementation, case, (*given, h0.t().contiguous().t(), c0.t().contiguous().t()), device)
