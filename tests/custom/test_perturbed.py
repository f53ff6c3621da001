"""Stochastic arithmetic: what varies, by how much, and what does not."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from suite.custom.perturbed import Perturbed, unrounded
from suite.custom.perturbed_numpy import rounded
from suite.numerics.formats import unit_roundoff

U = unit_roundoff("float32")
Function = Callable[..., torch.Tensor]


def errors(function: Function, *inputs: torch.Tensor, amplification: float = 1.0, runs: int = 1) -> torch.Tensor:
    """Relative errors of runs with other roundings, in units of float32's roundoff."""
    exact = function(*(each.double() for each in inputs))
    source = torch.Generator().manual_seed(1)
    found = []
    for _ in range(runs):
        with torch.no_grad(), Perturbed(source, amplification, "ieee"):
            found.append(unrounded(function(*(each.clone() for each in inputs))))
    return (torch.stack(found) - exact) / exact.abs().clamp_min(1e-30) / U


def random(*shape: int) -> torch.Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(0)) + 0.5


EXACT: dict[str, Function] = {
    "the maximum": lambda x: x.amax(1),
    "relu": lambda x: torch.relu(x - 1.0 + 1.0),
    "a copy in another order": lambda x: x.flip(0).T.contiguous(),
    "max pooling": lambda x: torch.nn.functional.max_pool1d(x[None], 3),
    "a sum of small integers": lambda x: (x * 8).round().sum(1),
    "a view": lambda x: x.view(-1)[2:],
}


@pytest.mark.parametrize("name", EXACT)
def test_exact_results_stay_exact(name: str) -> None:
    x = (random(4, 30) * 64).round() / 64  # so that the arithmetic is exact
    assert float(errors(EXACT[name], x).abs().max()) == 0.0


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16, torch.complex64])
def test_later_runs_of_a_reference_err_as_the_first(kind: torch.dtype) -> None:
    """They take operations for inexact that were so in the first run, and exact ones are still exact."""
    x, weight = (torch.randn(64, 64, generator=torch.Generator().manual_seed(i)).to(kind) for i in range(2))
    source, known, sizes = torch.Generator().manual_seed(9), {}, []
    exact = (lambda a, b: (a @ b * 3.0).sum(0))(*(each.to(torch.complex128) for each in (x, weight)))
    for _ in range(4):
        with torch.no_grad(), Perturbed(source, 1.0, "ieee", known):
            copied = x.T.contiguous() * 2.0
            found = (x @ weight * 3.0).sum(0)
        assert torch.equal(unrounded(copied), x.T.to(unrounded(copied).dtype) * 2.0)
        assert found.dtype == kind
        sizes.append(float((unrounded(found).to(exact.dtype) - exact).abs().square().mean().sqrt()))
    assert len(known) == 3
    assert max(sizes) < 2.0 * min(sizes)


@pytest.mark.parametrize("amplification", [1.0, 8.0])
def test_one_rounding_errs_by_the_unit_roundoff_times_the_amplification(amplification: float) -> None:
    found = errors(lambda x, y: x * y, random(100, 100), random(100, 100).flip(0), amplification=amplification)
    assert 0.98 * amplification < float(found.abs().max()) <= amplification


@pytest.mark.parametrize("terms", [16, 1024])
@pytest.mark.parametrize("kind", ["sum", "matmul"])
def test_sums_err_as_their_length_allows(kind: str, terms: int) -> None:
    """Terms of one sign: u sqrt(n)/3 of the sum, and the terms' own u sqrt(n/3) spread, which is u/sqrt(3) of it."""
    x = random(64, terms)
    found = errors(lambda x: x.sum(1) if kind == "sum" else x @ torch.ones(terms, 1, dtype=x.dtype), x, runs=16)
    expected = math.sqrt(terms / 9.0 + 2.0 / 3.0)
    assert 0.7 * expected < float(found.std()) < 1.5 * expected


WITHOUT_THE_LAST_ROUNDING: dict[str, Function] = {
    "a function's result": lambda x: x * 1.1,
    "a view of it": lambda x: (x * 1.1).T,
    "changed in place": lambda x: x.add_(0.1),
    "cut off": lambda x: torch.relu(x * 1.1 - 0.001),
    "copied": lambda x: torch.cat((x * 1.1, x), 1).T.contiguous(),
}


@pytest.mark.parametrize("name", WITHOUT_THE_LAST_ROUNDING)
def test_the_last_rounding_is_left_out(name: str) -> None:
    x = random(16, 16).bfloat16()
    with torch.no_grad(), Perturbed(torch.Generator().manual_seed(0), 1.0, "ieee"):
        result = WITHOUT_THE_LAST_ROUNDING[name](x.clone())
    assert result.dtype is torch.bfloat16
    assert not torch.equal(unrounded(result), result.double())
    assert torch.equal(unrounded(result).bfloat16(), result)


def test_a_result_whose_memory_was_written_to_is_read_again() -> None:
    with torch.no_grad(), Perturbed(torch.Generator().manual_seed(0), 1.0, "ieee"):
        result = random(4) * 1.1
        result.view(-1).zero_()
    assert unrounded(result).tolist() == [0.0] * 4


def test_products_in_tf32_err_more() -> None:
    x, ones = random(8, 32), torch.ones(32, 1)
    exact = x.double() @ ones.double()
    with torch.no_grad(), Perturbed(torch.Generator().manual_seed(0), 1.0, "tf32"):
        found = unrounded(x @ ones)
    assert float(((found - exact) / exact).abs().max()) > 2.0**-13


NUMPY: dict[str, Callable[[Any], Any]] = {
    "functions": lambda x: np.exp(x) * 1.1,
    "sums": lambda x: x.sum(axis=1) / x.mean(axis=1),
    "products": lambda x: x @ np.ones((64, 3)),
    "einsum": lambda x: np.einsum("ij,kj->ik", x, x),
    "in place": lambda x: np.add(x, 0.1, out=x),
}


@pytest.mark.parametrize("name", NUMPY)
@pytest.mark.parametrize("kind", ["float32", "bfloat16"])
def test_numpys_results_err_by_several_roundoffs(name: str, kind: str) -> None:
    x = np.random.default_rng(0).uniform(1.0, 2.0, (32, 64)).astype(np.float32)
    x = (torch.from_numpy(x).to(getattr(torch, kind))).double().numpy()
    exact, found = NUMPY[name](x.copy()), NUMPY[name](rounded(x, kind, 1.0, np.random.default_rng(0)))
    error = np.abs(found.unrounded - exact) / np.abs(exact) / unit_roundoff(kind)
    assert 0.5 < error.max() < 40.0
    stored = torch.from_numpy(np.array(found))
    assert torch.equal(stored.to(getattr(torch, kind)).double(), stored)
