"""lstm: its truth is torch's in float64; its bounds stay close to the roundings over many steps, and tell mistakes."""

from __future__ import annotations

import math

import pytest
import torch
from judging import CPU, RIGHT

from suite import ops
from suite.checking.judge import judge
from suite.numerics.formats import DTYPES, unit_roundoff
from suite.problem.case import Case
from suite.problem.outputs import joined

OP = ops.get("lstm")
Tensors = tuple[torch.Tensor, ...]


def by_torch(inputs: Tensors) -> Tensors:
    x, w_ih, w_hh, bias, h0, c0 = (each.double() for each in inputs)
    state = (h0[None], c0[None])
    y, h, c = torch.lstm(x, state, [w_ih, w_hh, bias, torch.zeros_like(bias)], True, 1, 0.0, False, False, False)
    return y, h[0], c[0]


def pieces(inputs: Tensors, case: Case) -> tuple[torch.Tensor, torch.Tensor]:
    """The truth and its bound, as one vector each."""
    value, bound = (torch.full(OP.output_shape(case), math.nan, dtype=torch.float64) for _ in range(2))
    for piece in OP.truth(inputs, case):
        value[piece.index], bound[piece.index] = piece.value, piece.limit
    return value, bound


def ratio(results: Tensors, inputs: Tensors, case: Case) -> float:
    output = joined([each.to(getattr(torch, case.dtype)) for each in results])
    return judge(output, OP.truth(inputs, case), shape=OP.output_shape(case), dtype=case.dtype).error_ratio


@pytest.mark.parametrize("family", ["normal", "large_state", "saturated", "strong"])
@pytest.mark.parametrize("shape", [(5, 3, 4, 7), (1, 1, 1, 1)], ids=str)
def test_the_truth_is_that_of_torch(shape: tuple[int, ...], family: str) -> None:
    case = OP.case(shape, inputs=family)
    inputs = OP.make_inputs(case, 0, CPU)
    torch.testing.assert_close(pieces(inputs, case)[0], joined(by_torch(inputs)), rtol=1e-12, atol=1e-14)


def rounding_each_step(inputs: Tensors, dtype: str, *, of_c: bool = False) -> Tensors:
    """All in float64, but h, x w_ih^T and, if asked for, c are rounded to a type in each step."""
    to = lambda each: each.to(getattr(torch, dtype)).double()  # noqa: E731
    x, w_ih, w_hh, bias, h, c = (each.double() for each in inputs)
    y = []
    for t in range(len(x)):
        i, f, g, o = (to(x[t] @ w_ih.T) + to(h) @ w_hh.T + bias).chunk(4, 1)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        c = to(c) if of_c else c
        h = o.sigmoid() * c.tanh()
        y.append(h)
    return torch.stack(y), h, c


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("family", ["normal", "remembers", "strong"])
def test_roundings_in_each_step_agree(dtype: str, family: str) -> None:
    case = OP.case((100, 2, 16, 48), dtype, inputs=family)
    inputs = OP.make_inputs(case, 1, CPU)
    assert ratio(rounding_each_step(inputs, dtype), inputs, case) < RIGHT


@pytest.mark.parametrize(
    ("dtype", "coarse"), [("float32", "bfloat16"), ("float32", "float16"), ("float16", "bfloat16")]
)
def test_a_coarser_type_is_refused(dtype: str, coarse: str) -> None:
    case = OP.case((20, 2, 16, 48), dtype)
    inputs = OP.make_inputs(case, 1, CPU)
    assert ratio(rounding_each_step(inputs, coarse), inputs, case) > 1.0


def test_a_sum_over_many_steps_tells_the_type_of_c() -> None:
    case = OP.case((60, 3, 8, 24), "bfloat16", inputs="remembers")
    inputs = OP.make_inputs(case, 1, CPU)
    assert ratio(rounding_each_step(inputs, "bfloat16", of_c=True), inputs, case) > 1.0


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_bound_does_not_grow_with_the_steps(dtype: str) -> None:
    """A recurrence that contracts forgets its errors; in 16 bits the bound stays a few roundings of 1."""
    case = OP.case((300, 1, 16, 64), dtype)
    _, bound = pieces(OP.make_inputs(case, 1, CPU), case)
    steps = bound[: 300 * 64].view(300, 64).amax(1)
    assert steps[-50:].max() < 2 * steps[10:60].max()
    assert steps.max() < (2000 if dtype == "float32" else 32) * unit_roundoff(dtype)


def test_nan_reaches_later_steps_of_its_row_alone() -> None:
    case = OP.case((4, 3, 5, 6))
    inputs = OP.make_inputs(case, 0, CPU)
    inputs[0][2, 1, 3] = math.nan
    nan = pieces(inputs, case)[0][: 4 * 3 * 6].view(4, 3, 6).isnan()
    assert nan[2:, 1].all()
    assert int(nan.sum()) == 2 * 6
