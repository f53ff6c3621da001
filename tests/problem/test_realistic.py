"""Inputs that people have: what they draw, and that right implementations pass on all of them, for every operation."""

from __future__ import annotations

import pytest
import torch
from thinning import crossed, named

from suite import frameworks, ops
from suite.checking.calls import LocalCaller
from suite.checking.check import judge_draw
from suite.checking.problem import Problem
from suite.implementations import builtin
from suite.problem import realistic

CPU = torch.device("cpu")
DTYPES = ("float32", "float16", "bfloat16")


def drawn(operation: str, family: str, shape: tuple[int, ...], dtype: str = "float32") -> tuple[torch.Tensor, ...]:
    op = ops.get(operation)
    return op.make_inputs(op.case(shape, dtype, inputs=family), 0, CPU)


def kurtosis(x: torch.Tensor) -> float:
    return float(((x - x.mean()) / x.std()).pow(4).mean())


def test_zeros_uniform_numbers_and_integers() -> None:
    assert all(not each.any() for each in drawn("matmul", "zeros", (8, 8, 64)))
    a, _ = drawn("matmul", "uniform", (64, 64, 64))
    assert a.abs().max() < 1.8 * a.std()
    assert kurtosis(a) == pytest.approx(1.8, abs=0.1)
    for dtype in DTYPES:
        a, _ = drawn("matmul", "integers", (8, 8, 64), dtype)
        assert set(a.flatten().tolist()) == set(range(-3, 4))
    w = drawn("lstm", "integers", (2, 3, 16, 16))[1]
    assert len(w.unique()) == 7
    assert w.abs().max() < 2.0, "the operation's scale of weights is kept"


def test_activations_have_outliers_in_a_few_channels_of_what_is_no_weight() -> None:
    a, b = drawn("matmul", "activations", (512, 64, 2048))
    by_channel = a.abs().median(dim=0).values
    assert 2 <= int((by_channel > 4.5).sum()) <= 6, "0.1% of the channels"
    shares = (a[:, by_channel.argmax()].abs() > 5).float().mean()
    assert 0.65 < shares < 0.85, "at three quarters of the positions"
    assert kurtosis(a) > 10
    assert kurtosis(b) == pytest.approx(3, abs=0.2), "weights stay normal"


def test_weights_are_those_of_the_trained_model() -> None:
    a, b = drawn("matmul", "weights", (64, 256, 256))
    kept = set(realistic._kept().tolist())
    assert len(kept) > 5000
    scaled = (b / (b.square().mean().sqrt() / realistic._kept().square().mean().sqrt())).flatten()
    nearest = torch.tensor(sorted(kept))
    at = torch.searchsorted(nearest, scaled).clamp(1, len(nearest) - 1)
    off = torch.minimum((scaled - nearest[at - 1]).abs(), (scaled - nearest[at]).abs())
    assert off.max() < 0.02
    assert kurtosis(a) == pytest.approx(3, abs=0.3)
    assert kurtosis(b) > 3.5
    x, y = drawn("vector_add", "weights", (4096,))
    assert kurtosis(x) > 3.5
    assert kurtosis(y) > 3.5


@pytest.mark.parametrize(("operation", "family"), crossed(named(ops.alone()), named(realistic.KINDS)))
def test_right_implementations_pass_and_wrong_ones_do_not(operation: str, family: str) -> None:
    op = ops.get(operation)
    case = next(iter(op.cases(family, "cpu")))
    assert case.inputs == family
    shape = op.families["nan"].shapes[0]
    for dtype in op.dtypes[:2]:
        problem = Problem(op.case(shape, dtype, inputs=family), 0, CPU)
        for name in ("torch", "numpy"):
            line = builtin.find(operation, name)
            function = line.for_case(problem.case).function()
            output = LocalCaller(lambda function=function: function, line.adapter, problem).call(0).early
            found = judge_draw(output, problem, 0)
            assert found.agrees, f"{dtype} {name}: {found.reason}"
    if family == "zeros" or "float32" not in op.dtypes:
        return
    problem = Problem(op.case(shape, "float32", inputs=family), 0, CPU)
    right = builtin.find(operation, "torch").for_case(problem.case).function()

    def coarse(*inputs: torch.Tensor, **options: object) -> object:
        found = right(*inputs, **options)
        several = isinstance(found, tuple)
        rounded = tuple((each.float() * 1.01).to(each.dtype) for each in (found if several else (found,)))
        return rounded if several else rounded[0]

    output = LocalCaller(lambda: coarse, frameworks.get("torch"), problem).call(0).early
    assert not judge_draw(output, problem, 0).agrees
