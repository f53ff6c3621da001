"""Stochastic arithmetic of operations that write to their arguments: they err as their other forms do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch.backends import mkldnn
from torch.nn import functional

from suite.custom.perturbed import InFloat64, Perturbed, unrounded
from suite.custom.perturbed_numpy import before_rounding, rounded
from suite.numerics.formats import unit_roundoff

Function = Callable[..., Any]
N = 6


@pytest.fixture(autouse=True)
def plain_operations(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in the computation of bounds: no layer of a library that runs as a whole."""
    monkeypatch.setattr(mkldnn, "enabled", False)


def drawn(*shape: int, seed: int = 0) -> torch.Tensor:
    """Numbers from 0.25 to 0.75, where nearly all functions are defined."""
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed)) / 2 + 0.25


INDEX = torch.tensor([0, 2, 2, 5])
INDICES = INDEX[:, None].expand(4, N)
MASK = drawn(N, N) > 0.5
ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "addbmm": (drawn(3, N, 4), drawn(3, 4, N)),
    "addcdiv": (drawn(N, N), drawn(N, N, seed=1)),
    "addcmul": (drawn(N, N), drawn(N, N, seed=1)),
    "addmm": (drawn(N, 4), drawn(4, N)),
    "addmv": (drawn(N, 4), drawn(4)),
    "addr": (drawn(N), drawn(N, seed=1)),
    "apply": (lambda value: 1.5 * value,),
    "baddbmm": (drawn(N, N, 4), drawn(N, 4, N)),
    "clamp": (0.4, 0.6),
    "clip": (0.4, 0.6),
    "cumprod": (1,),
    "cumsum": (1,),
    "fill": (0.3,),
    "fill_diagonal": (0.3,),
    "index_add": (0, INDEX, drawn(4, N)),
    "index_copy": (0, INDEX[[0, 1, 3]], drawn(3, N)),
    "index_fill": (0, INDEX, 0.3),
    "index_put": ((INDEX, INDEX), drawn(4), True),
    "index_reduce": (0, INDEX, drawn(4, N), "prod"),
    "lerp": (drawn(N, N, seed=1), 0.3),
    "map": (drawn(N, N), lambda one, other: one * other),
    "map2": (drawn(N, N), drawn(N, N), lambda one, *others: one * 1.5),
    "masked_fill": (MASK, 0.3),
    "masked_scatter": (MASK, drawn(N, N, seed=1)),
    "mvlgamma": (1,),
    "polygamma": (1,),
    "put": (INDEX, drawn(4), True),
    "renorm": (2, 0, 0.5),
    "scatter": (0, INDICES, drawn(4, N)),
    "scatter_add": (0, INDICES, drawn(4, N)),
    "scatter_reduce": (0, INDICES, drawn(4, N), "prod"),
}
"""The arguments of methods that take others than nothing or one tensor."""
SHAPES = {"addmv": (N,), "baddbmm": (N, N, N)}
RANDOM = {"bernoulli", "cauchy", "exponential", "geometric", "log_normal", "normal", "random", "uniform"}
ON_INTEGERS = {f"bitwise_{name}" for name in ("and", "or", "xor", "not", "left_shift", "right_shift")} | {"gcd", "lcm"}
FOR_FLOAT64 = {"float_power"}
NO_ARITHMETIC = {
    *("as_strided", "detach", "requires_grad", "resize", "resize_as", "set", "share_memory", "squeeze", "unsqueeze"),
    *("resize_as_sparse", "sparse_resize", "sparse_resize_and_clear", "swapaxes", "swapdims", "t", "transpose"),
}
METHODS = sorted(
    {name[:-1] for name in dir(torch.Tensor) if name.endswith("_") and not name.startswith("_")}
    - (RANDOM | ON_INTEGERS | FOR_FLOAT64 | NO_ARITHMETIC)
)


def operand(name: str) -> torch.Tensor:
    return drawn(*SHAPES.get(name, (N, N)), seed=2) + (1.0 if name in ("acosh", "arccosh") else 0.0)


def arguments(name: str) -> tuple[Any, ...]:
    """The arguments of a method: those of the table, else none if it takes none, else a tensor."""
    if name in ARGUMENTS:
        return ARGUMENTS[name]
    try:
        getattr(operand(name), f"{name}_")()
    except TypeError:
        return (drawn(N, N),)
    return ()


def perturbed(function: Function, *inputs: torch.Tensor) -> torch.Tensor:
    """The result before its last rounding, of a run with random roundings."""
    with torch.no_grad(), Perturbed(torch.Generator().manual_seed(1), 1.0, "ieee"):
        return unrounded(function(*(each.clone() for each in inputs)))


def exact(function: Function, *inputs: torch.Tensor) -> torch.Tensor:
    with torch.no_grad(), InFloat64():
        found: torch.Tensor = function(*(each.double() for each in inputs))
    return found


def assert_rounded(function: Function, *inputs: torch.Tensor, limit: float = 100.0) -> None:
    """The result of a run with random roundings is off by a few roundings of the truth, at most `limit`."""
    truth = exact(function, *inputs)
    error = (perturbed(function, *inputs) - truth).abs().max()
    assert float(error) <= limit * unit_roundoff("float32") * float(truth.abs().max())


def test_the_methods_of_torch_are_found() -> None:
    assert len(METHODS) > 110
    assert {"mul", "add", "copy", "addmm", "index_put", "masked_fill", "relu"} <= set(METHODS)


@pytest.mark.parametrize("name", METHODS)
def test_a_method_in_place_errs_by_roundings(name: str) -> None:
    x, given = operand(name) * 1.0, arguments(name)

    def in_place(x: torch.Tensor, *others: torch.Tensor) -> torch.Tensor:
        tensors = iter(others)
        own = (next(tensors) if isinstance(each, torch.Tensor) and each.is_floating_point() else each for each in given)
        found: torch.Tensor = getattr(x * 1.0, f"{name}_")(*own)
        return found

    floats = [each for each in given if isinstance(each, torch.Tensor) and each.is_floating_point()]
    assert_rounded(in_place, x, *floats)
    if hasattr(torch.Tensor, name):
        method = getattr(torch.Tensor, name)
        other = perturbed(lambda x, *_: method(x * 1.0, *given), x)
        assert torch.equal(perturbed(in_place, x, *floats), other)


def lstm_cell(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    h = torch.zeros_like(x)
    out = torch.empty(4, *x.shape, dtype=x.dtype)
    for step in range(4):
        h *= 0.5
        h += torch.tanh(x @ w)
        out[step] = h
    return out


def residual(x: torch.Tensor) -> torch.Tensor:
    out = functional.relu(x * 3.3 - 1.0, inplace=True)
    out += x
    out[:, 1:] *= out[:, :-1].clone()
    out.view(-1)[::2].sub_(0.5).div_(1.3)
    out[out > 0.6] = 0.1
    return out


def foreach(x: torch.Tensor) -> torch.Tensor:
    both = [x * 1.1, x * 1.3]
    torch._foreach_mul_(both, 3.3)
    torch._foreach_add_(both, 0.7)
    return torch.cat(both)


def with_out(x: torch.Tensor) -> torch.Tensor:
    out, values, places = torch.empty_like(x), x.new_empty(N), torch.empty(N, dtype=torch.int64)
    torch.add(x, 1.1, out=out)
    torch.mul(out, x, out=out)
    torch.softmax(out, 1, out=out)
    torch.matmul(out * 1.0, x, out=out)  # BLAS may clear its result before it reads an operand that is the same
    torch.cumsum(out, 0, out=out)
    torch.max(out * 1.1, 1, out=(values, places))
    return out.add_(values).add_(places)


def module(made: Callable[[], torch.nn.Module]) -> Function:
    """A function that runs a new module in the type of its argument, with weights drawn from one seed."""

    def run(x: torch.Tensor) -> torch.Tensor:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            own = made().to(x.dtype).requires_grad_(False)
        found = own(x.expand(3, *x.shape) * 1.0)
        return found[0] if isinstance(found, tuple) else found

    return run


FUNCTIONS: dict[str, Function] = {
    "a recurrence that fills its result": lambda x: lstm_cell(x, x),
    "a residual": residual,
    "lists of tensors": foreach,
    "out": with_out,
    "powers": lambda x: (x * 1.0).pow_(2).mul_(3.3).clamp_(min=0.1).sqrt_(),
    "activations in place": lambda x: functional.elu(functional.leaky_relu(x - 0.5, 0.1, inplace=True), inplace=True),
    "activations": lambda x: functional.hardtanh_(functional.selu_(functional.celu_(x - 0.5))),
    "initialized": lambda x: torch.nn.init.constant_(torch.empty_like(x), 0.3) * torch.nn.init.eye_(x * 1.0),
    "LSTM": module(lambda: torch.nn.LSTM(N, 5, num_layers=2, bidirectional=True)),
    "GRU": module(lambda: torch.nn.GRU(N, 5, batch_first=True)),
    "RNN": module(lambda: torch.nn.RNN(N, 5)),
    "LSTMCell": module(lambda: _Cell()),
    "BatchNorm": module(lambda: torch.nn.BatchNorm1d(N)),
    "BatchNorm with its averages": module(lambda: torch.nn.BatchNorm1d(N).eval()),
    "modules in place": module(
        lambda: torch.nn.Sequential(torch.nn.Linear(N, 5), torch.nn.ReLU(inplace=True), torch.nn.Hardswish(True))
    ),
}


class _Cell(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell = torch.nn.LSTMCell(N, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = c = x.new_zeros(N, 5)
        for step in x:
            h, c = self.cell(step, (h, c))
        return h


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_with_writes_errs_by_roundings(name: str) -> None:
    assert_rounded(FUNCTIONS[name], drawn(N, N, seed=2), limit=300.0)


def test_a_result_that_is_filled_in_parts_keeps_the_numbers_before_their_rounding() -> None:
    def parts(x: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(x)
        for row in range(N):
            out[row] = x[row] * 1.1
        return out

    x = drawn(N, N).bfloat16()
    found = perturbed(parts, x)
    assert float((found - 1.1 * x.double()).abs().max()) > 0.0
    with torch.no_grad(), Perturbed(torch.Generator().manual_seed(1), 1.0, "ieee"):
        stored = parts(x.clone())
    assert torch.equal(found.bfloat16(), stored)
    assert not torch.equal(found, stored.double())


def added_in_a_view(x: Any) -> Any:
    y = x * 1.1
    row = y[0]
    row += 1.0
    return y


def filled(x: Any) -> Any:
    y = x * 1.1
    y.flat[:] = 2.0
    y[1:].fill(3.0)
    return y


def at(x: Any) -> Any:
    y = x * 1.1
    np.add.at(y, [0, 0, 1], 1.3)
    return y


def where(x: Any) -> Any:
    y = x * 1.1
    np.multiply(y, 3.3, out=y, where=np.asarray(x) > 0.5)
    y *= 1.3
    return y


def several(x: Any) -> Any:
    fraction, whole = np.zeros_like(x), np.zeros_like(x)
    np.modf(x * 3.3, out=(fraction, whole))
    return fraction + 2.0 * whole


@pytest.mark.parametrize("function", [added_in_a_view, filled, at, where, several])
def test_numpys_writes_err_by_roundings(function: Function) -> None:
    x = drawn(N, N).numpy()
    truth = function(x.astype(np.float64))
    found = before_rounding(function(rounded(x.astype(np.float64), "float32", 1.0, np.random.default_rng(0))))
    assert np.abs(found - truth).max() <= 20 * unit_roundoff("float32") * np.abs(truth).max()
