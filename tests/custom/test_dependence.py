"""Inputs and parameters that change nothing are named; constant parameters are drawn in a telling case."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from custom_files import CPU, HEAD, operation, verdict
from torch.nn import functional

from suite.custom import dependence as under_test
from suite.custom.dependence import Dependence, dependence
from suite.custom.operation import CustomOperation
from suite.custom.varied import VARIED, is_constant, varied

NORM = """
import torch

n = 16


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(n, n)
        self.norm = torch.nn.LayerNorm(n)

    def forward(self, x):
        return self.norm(self.fc(x))


def get_inputs():
    return [torch.rand(8, n)]


def get_init_inputs():
    return []
"""


def depends(op: CustomOperation) -> Dependence:
    return dependence(op.program, op.default_cases("cpu")[0], CPU, lambda: None)


def of_reference(tmp_path: Path, inputs: str, parameters: str, result: str) -> tuple[str, ...]:
    text = HEAD + f"def inputs(case):\n    return {inputs}\ndef reference({parameters}):\n    return {result}\n"
    return depends(operation(tmp_path, text)).sentences


X, INTEGERS = "torch.randn(9, 5)", "torch.randint(0, 9, (4,))"
REFERENCES = {
    "all matter": (f"[{X}, {X}]", "x, y", "x * y", ()),
    "one is unused": (f"[{X}, {X}, 0.5, {X}]", "x, y, eps, z", "x * eps + z", ("the input y",)),
    "two are unused": (f"[{X}, {X}, {X}]", "x, y, z", "z + 0 * x", ("the inputs x, y",)),
    "a shift that softmax cancels": (f"[{X}, torch.randn(9, 1)]", "x, b", "torch.softmax(x + b, 1)", ("the input b",)),
    "a constant": ("[torch.randn(9, 5), torch.ones(5)]", "x, w", "x * w", ()),
    "an unused constant": ("[torch.randn(9, 5), torch.ones(5)]", "x, w", "x + 1", ("the input w",)),
    "integers": (f"[{X}, {INTEGERS}]", "x, i", "x[i]", ()),
    "unused integers": (f"[{X}, {INTEGERS}]", "x, i", "x * 2", ("the input i",)),
    "only infinities": (f"[{X}]", "x", "x / torch.zeros_like(x)", ()),
}


@pytest.mark.parametrize("name", REFERENCES)
def test_inputs_that_change_nothing_are_named(name: str, tmp_path: Path) -> None:
    inputs, parameters, result, unused = REFERENCES[name]
    found = of_reference(tmp_path, inputs, parameters, result)
    assert found == tuple(f"the result does not depend on {each}" for each in unused)


@pytest.mark.parametrize("result", ["torch.softmax(x[:, :1], 1)", "(x - x).relu()", "torch.ones_like(x)"])
def test_a_result_that_is_always_the_same_is_told(result: str, tmp_path: Path) -> None:
    assert of_reference(tmp_path, f"[{X}, {X}]", "x, y", result) == ("the result is the same for all inputs",)


def test_parameters_that_change_nothing_are_named(tmp_path: Path) -> None:
    assert depends(operation(tmp_path, NORM, "norm", "kernelbench")) == Dependence()
    text = NORM.replace("self.norm(self.fc(x))", "torch.softmax(self.fc(x).sum(1) + self.norm.bias[0], 0)")
    op = operation(tmp_path, text, "other", "kernelbench")
    case = op.default_cases("cpu")[0]
    before = {name: value.clone() for name, value in op.program.weights(case).items()}
    expected = "the result does not depend on the parameters fc.bias, norm.weight, norm.bias"
    assert depends(op).sentences == (expected,)
    assert all(torch.equal(value, before[name]) for name, value in op.program.weights(case).items())


def test_what_there_was_no_time_for_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(under_test, "BUDGET_S", -1.0)
    assert depends(operation(tmp_path, NORM, "norm", "kernelbench")) == Dependence((), 5)


def test_varied_parameters_keep_their_signs() -> None:
    ones, zeros, mixed = torch.ones(100), torch.zeros(100), torch.linspace(-1, 1, 100)
    assert is_constant(ones)
    assert is_constant(zeros)
    assert not any(map(is_constant, (mixed, torch.arange(3), torch.empty(0), torch.full((3,), torch.inf))))
    for values in (ones, mixed):
        assert torch.equal(torch.sign(varied(values, 0)), torch.sign(values))
    for values in (ones, zeros):
        assert not is_constant(varied(values, 0))
    assert not torch.equal(varied(ones, 0), varied(ones, 1))


class Solution(torch.nn.Module):
    """The norm of the problem, with its own names; `forward` is that of a subclass."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = torch.nn.Linear(16, 16)
        self.gamma, self.beta = torch.nn.Parameter(torch.ones(16)), torch.nn.Parameter(torch.zeros(16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.layer_norm(self.fc(x), (16,), self.gamma, self.beta)


class WithoutWeight(Solution):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.layer_norm(self.fc(x), (16,), None, self.beta)


class WithoutParameters(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = torch.nn.Linear(16, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.layer_norm(self.fc(x), (16,))


@pytest.mark.parametrize(("kind", "right"), [(Solution, True), (WithoutWeight, False), (WithoutParameters, False)])
def test_constant_parameters_are_drawn_in_a_telling_case(kind: Callable[[], Any], right: bool, tmp_path: Path) -> None:
    op = operation(tmp_path, NORM, "norm", "kernelbench")
    plain = op.default_cases("cpu")[0]
    op.facts(plain)
    telling = op.telling_cases("float32", "ieee")[VARIED]
    for case, agrees in ((plain, True), (telling, right)):
        inputs = op.make_inputs(case, 0, CPU)
        assert verdict(op, case, op.callable_of(kind, case)(*inputs), inputs).agrees is agrees


def test_a_model_without_constant_parameters_has_no_telling_case(tmp_path: Path) -> None:
    op = operation(tmp_path, NORM.replace("self.norm(self.fc(x))", "self.fc(x)").replace("LayerNorm(n)", "ReLU()"),
                   "plain", "kernelbench")  # fmt: skip
    op.facts(op.default_cases("cpu")[0])
    assert op.telling_cases("float32", "ieee") == {}
