"""lstm: its truth is torch's in float64; its bounds stay close to the roundings over many steps, and tell mistakes."""

from __future__ import annotations

import math

import pytest
import torch
from judging import CPU, RIGHT

from suite import ops
from suite.checking.judge import judge
from suite.numerics.formats import DTYPES, unit_roundoff
from suite.ops.lstm import by_layer
from suite.problem.case import Case
from suite.problem.outputs import joined

OP = ops.get("lstm")
Tensors = tuple[torch.Tensor, ...]


def by_torch(inputs: Tensors) -> Tensors:
    x, *operands = (each.double() for each in inputs)
    layers = by_layer(tuple(operands))
    state = tuple(torch.stack([each[at] for each in layers]) for at in (3, 4))
    weights = [each for w_ih, w_hh, bias, *_ in layers for each in (w_ih, w_hh, bias, torch.zeros_like(bias))]
    y, h, c = torch.lstm(x, state, weights, True, len(layers), 0.0, False, False, False)
    return y, h.view(inputs[4].shape), c.view(inputs[5].shape)


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
@pytest.mark.parametrize("layers", ["1", "2", "4"])
@pytest.mark.parametrize("shape", [(5, 3, 4, 7), (1, 1, 1, 1)], ids=str)
def test_the_truth_is_that_of_torch(shape: tuple[int, ...], layers: str, family: str) -> None:
    case = OP.case(shape, inputs=family, layers=layers)
    inputs = OP.make_inputs(case, 0, CPU)
    torch.testing.assert_close(pieces(inputs, case)[0], joined(by_torch(inputs)), rtol=1e-12, atol=1e-14)


def rounding_each_step(
    inputs: Tensors, dtype: str, *, of_c: bool = False, of_gates: bool = False, first: int = 0
) -> Tensors:
    """All in float64, but h, x w_ih^T and, if asked for, c and the gates are rounded to a type in each step.

    first: the first layer with these roundings.
    """
    y, *operands = (each.double() for each in inputs)
    states = []
    for layer, (w_ih, w_hh, bias, h, c) in enumerate(by_layer(tuple(operands))):
        to = lambda each: each.to(getattr(torch, dtype)).double()  # noqa: E731
        to = to if layer >= first else lambda each: each
        x, outputs = y if layer == 0 else to(y), []
        for t in range(len(x)):
            i, f, g, o = (to(x[t] @ w_ih.T) + to(h) @ w_hh.T + bias).chunk(4, 1)
            gates = i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()
            i, f, g, o = map(to, gates) if of_gates else gates
            c = f * c + i * g
            c = to(c) if of_c else c
            h = o * c.tanh()
            outputs.append(h)
        y = torch.stack(outputs)
        states.append((h, c))
    h, c = (torch.stack(each).view(inputs[4].shape) for each in zip(*states, strict=True))
    return y, h, c


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("family", ["normal", "remembers", "strong"])
@pytest.mark.parametrize(("steps", "layers"), [(100, "1"), (12, "3")])
def test_roundings_in_each_step_agree(dtype: str, family: str, steps: int, layers: str) -> None:
    case = OP.case((steps, 2, 16, 48), dtype, inputs=family, layers=layers)
    inputs = OP.make_inputs(case, 1, CPU)
    assert ratio(rounding_each_step(inputs, dtype), inputs, case) < RIGHT


@pytest.mark.parametrize(
    ("dtype", "coarse", "layers", "first"),
    [
        ("float32", "bfloat16", "1", 0),
        ("float32", "float16", "1", 0),
        ("float16", "bfloat16", "1", 0),
        ("float32", "float16", "3", 2),
        ("float32", "bfloat16", "3", 1),
    ],
)
def test_a_coarser_type_is_refused(dtype: str, coarse: str, layers: str, first: int) -> None:
    case = OP.case((20, 2, 16, 48), dtype, layers=layers)
    inputs = OP.make_inputs(case, 1, CPU)
    assert ratio(rounding_each_step(inputs, coarse, first=first), inputs, case) > 1.0


def test_a_sum_over_many_steps_tells_the_type_of_c() -> None:
    case = OP.case((60, 3, 8, 24), "bfloat16", inputs="remembers")
    inputs = OP.make_inputs(case, 1, CPU)
    assert ratio(rounding_each_step(inputs, "bfloat16", of_c=True), inputs, case) > 1.0


@pytest.mark.parametrize("rounded", [{}, {"of_gates": True}, {"of_c": True}], ids=str)
def test_saturated_gates_tell_the_type_of_gates_and_of_c(rounded: dict[str, bool]) -> None:
    case = OP.case((3, 5, 8, 24), "bfloat16", inputs="saturated")
    drawn = [OP.make_inputs(case, seed, CPU) for seed in range(6)]
    largest = max(ratio(rounding_each_step(inputs, "bfloat16", **rounded), inputs, case) for inputs in drawn)
    assert largest > 2.0 if rounded else largest < RIGHT


def test_saturated_gates_are_told_in_float32_and_at_odd_sizes() -> None:
    cases = {dtype: OP.telling_cases(dtype, "ieee").keys() for dtype in DTYPES}
    assert all("saturated_odd" in each for each in cases.values())
    assert {dtype for dtype, names in cases.items() if "saturated" in names} == {"float32"}


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


def test_nan_reaches_the_layers_above_alone() -> None:
    case = OP.case((3, 2, 5, 6), layers="3")
    inputs = OP.make_inputs(case, 0, CPU)
    inputs[5][1, 0, 2] = math.nan
    y, h, _ = pieces(inputs, case)[0].split([3 * 2 * 6, 3 * 2 * 6, 3 * 2 * 6])
    assert y.view(3, 2, 6).isnan().any(2).tolist() == [[True, False]] * 3
    assert h.view(3, 2, 6).isnan().any(2).tolist() == [[False, False], [True, False], [True, False]]


def test_each_layer_counts() -> None:
    one, three = (OP.case((4, 3, 8, 16), layers=layers) for layers in ("1", "3"))
    upper = OP.case((4, 3, 16, 16))
    assert OP.flops(three) == OP.flops(one) + 2 * OP.flops(upper)
    assert OP.operands(three)[1:] == ((64, 8), (3, 64, 16), (3, 64), (3, 3, 16), (3, 3, 16), (2, 64, 16))
    assert [OP.operands(case)[0] for case in (one, three)] == [(4, 3, 8)] * 2


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_bound_hardly_grows_with_the_layers(dtype: str) -> None:
    case = OP.case((12, 1, 16, 48), dtype, layers="4")
    _, bound = pieces(OP.make_inputs(case, 1, CPU), case)
    layers = bound[12 * 48 :].view(2, 4, 48).mean((0, 2))
    assert layers.max() < 2 * layers[0]
