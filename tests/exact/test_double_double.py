"""Arithmetic of pairs against mpmath: about 2^-70 of the result, or of the largest terms of a matrix product."""

from __future__ import annotations

from collections.abc import Callable

import mpmath
import pytest
import torch

from suite.exact import functions
from suite.exact.double_double import DoubleDouble, exactly, two_product, two_sum
from suite.exact.products import product

CLOSE = 2.0**-68
WORDS = mpmath.mp.clone()
WORDS.prec = 300


def value_of(pair: DoubleDouble, place: int) -> mpmath.mpf:
    """An element of the flattened pair."""
    return WORDS.mpf(float(pair.high.reshape(-1)[place])) + WORDS.mpf(float(pair.low.reshape(-1)[place]))


def drawn(*shape: int, low: float = -1.0, high: float = 1.0) -> torch.Tensor:
    source = torch.Generator().manual_seed(1)
    return torch.rand(shape, generator=source, dtype=torch.float64) * (high - low) + low


def sigmoid(x: mpmath.mpf) -> mpmath.mpf:
    return 1 / (1 + WORDS.exp(-x))


@pytest.mark.parametrize(
    ("function", "truth", "largest"),
    [
        (functions.exp, WORDS.exp, 600.0),
        (functions.exp, WORDS.exp, 1e-3),
        (functions.sigmoid, sigmoid, 600.0),
        (functions.sigmoid, sigmoid, 2.0),
        (functions.tanh, WORDS.tanh, 20.0),
        (functions.tanh, WORDS.tanh, 2.0**-9),
        (functions.tanh, WORDS.tanh, 1e-200),
        (lambda x: (x * x).sqrt(), abs, 1e10),
        (lambda x: exactly(torch.ones_like(x.high)) / x, lambda x: 1 / x, 1e-3),
    ],
)
def test_functions(
    function: Callable[[DoubleDouble], DoubleDouble], truth: Callable[[mpmath.mpf], mpmath.mpf], largest: float
) -> None:
    x = drawn(200, low=-largest, high=largest)
    given = DoubleDouble(*two_sum(x, x * 2.0**-55))
    found = function(given)
    for place in range(len(x)):
        expected = truth(value_of(given, place))
        assert abs(value_of(found, place) - expected) <= CLOSE * abs(expected)
    assert bool((found.low.abs() <= found.high.abs() * 2.0**-53).all())


def test_the_exponential_at_its_ends() -> None:
    x = torch.tensor([-torch.inf, -746.0, 0.0, 710.0, torch.inf, torch.nan], dtype=torch.float64)
    assert functions.exp(exactly(x)).high.tolist()[:5] == [0.0, 0.0, 1.0, torch.inf, torch.inf]
    assert bool(functions.exp(exactly(x)).high[5].isnan())


def test_sums_and_products_of_two_numbers_are_exact() -> None:
    a, b = drawn(100) * 2.0 ** torch.arange(100, dtype=torch.float64), drawn(100).flip(0)
    for found, truth in ((two_sum(a, b), WORDS.fadd), (two_product(a, b), WORDS.fmul)):
        pair = DoubleDouble(*found)
        for place in range(100):
            assert value_of(pair, place) == truth(WORDS.mpf(float(a[place])), WORDS.mpf(float(b[place])))
    largest = torch.tensor([torch.finfo(torch.float64).max], dtype=torch.float64)
    assert two_product(largest, largest)[1].tolist() == [0.0], "no NaN beside an infinity"


@pytest.mark.parametrize("count", [0, 1, 2, 3, 1000])
def test_sums(count: int) -> None:
    x = drawn(count, 3) * 2.0 ** (40.0 * drawn(count, 3))
    found = exactly(x).sum(0)
    for column in range(3):
        assert abs(value_of(found, column) - WORDS.fsum(map(WORDS.mpf, x[:, column].tolist()))) <= 2.0**-100 * 2.0**41


@pytest.mark.parametrize("terms", [1, 3, 64, 1000])
@pytest.mark.parametrize("scale", [1.0, 2.0**-900, 2.0**500])
def test_matrix_products(terms: int, scale: float) -> None:
    a, b = drawn(3, terms) * 2.0 ** (30.0 * drawn(3, terms)), drawn(terms, 2) / scale
    a = a * scale
    found = product(a, b)
    for place in range(6):
        row, column = (list(map(WORDS.mpf, each.tolist())) for each in (a[place // 2], b[:, place % 2]))
        size = max(map(abs, row)) * max(map(abs, column))
        assert abs(value_of(found, place) - WORDS.fdot(row, column)) <= 2.0**-85 * size


def test_a_product_keeps_the_infinities_and_nan_of_float64() -> None:
    a, b = drawn(4, 8), drawn(8, 3)
    a[0, 0], a[1, 1], b[2, 0] = torch.inf, torch.nan, -torch.inf
    plain, found = a @ b, product(a, b)
    assert torch.equal(plain.isfinite(), found.high.isfinite())
    torch.testing.assert_close(plain, found.high, equal_nan=True)
