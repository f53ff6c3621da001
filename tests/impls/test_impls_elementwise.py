"""vector_add, matrix_add and sigmoid in JAX, PyTorch and NumPy, against float64."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from impls_common import DTYPES, Implementation, implementations, normal, ulp


@pytest.fixture(params=implementations("vector_add"))
def vector_add(request: pytest.FixtureRequest) -> Implementation:
    return Implementation(*request.param)


@pytest.fixture(params=implementations("matrix_add"))
def matrix_add(request: pytest.FixtureRequest) -> Implementation:
    return Implementation(*request.param)


@pytest.fixture(params=implementations("sigmoid"))
def sigmoid(request: pytest.FixtureRequest) -> Implementation:
    return Implementation(*request.param)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("n", "step"), [(0, 1), (1, 1), (31, 1), (1025, 1), (1025, 3)])
def test_vector_add_is_correctly_rounded(vector_add: Implementation, dtype: torch.dtype, n: int, step: int) -> None:
    a, b = (normal(n * step, dtype=dtype, seed=seed)[::step] for seed in (1, 2))
    assert torch.equal(vector_add(a, b), (a.double() + b.double()).to(dtype))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(
    "view",
    [
        pytest.param(lambda t: t, id="plain"),
        pytest.param(lambda t: t.T.contiguous().T, id="transposed"),
        pytest.param(lambda t: torch.cat([t, t], dim=1)[:, ::2], id="sliced"),
        pytest.param(lambda t: t[:1].expand(t.shape), id="broadcast-rows"),
        pytest.param(lambda t: t[:, :1].expand(t.shape), id="broadcast-columns"),
    ],
)
def test_matrix_add_is_correctly_rounded(matrix_add: Implementation, dtype: torch.dtype, view: Callable) -> None:
    a, b = (normal(33, 65, dtype=dtype, seed=seed) for seed in (1, 2))
    for left, right in ((view(a), b), (a, view(b)), (view(a), view(b))):
        assert torch.equal(matrix_add(left, right), (left.double() + right.double()).to(dtype))


@pytest.mark.parametrize("shape", [(0, 5), (5, 0), (1, 1), (1, 129)])
def test_matrix_add_of_edge_shapes(matrix_add: Implementation, shape: tuple[int, int]) -> None:
    a = normal(*shape)
    assert torch.equal(matrix_add(a, a), a + a)


def test_sums_beyond_the_range_are_infinite(vector_add: Implementation) -> None:
    for dtype in DTYPES:
        a = torch.tensor([torch.finfo(dtype).max, -torch.finfo(dtype).max, torch.inf, torch.nan], dtype=dtype)
        assert torch.equal(vector_add(a, a).isinf(), torch.tensor([True, True, True, False]))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_sigmoid_is_accurate_everywhere(sigmoid: Implementation, dtype: torch.dtype) -> None:
    """PyTorch's plain formula reaches 3 float32 ulps. XLA on a CPU flushes subnormals to zero."""
    tails = torch.logspace(-6, 2, 20_000, base=10.0)
    x = torch.cat([normal(50_000) * 3, tails, -tails, torch.linspace(-86, 20, 20_001)]).to(dtype)
    x = x[x > -87]
    truth = torch.sigmoid(x.double())
    float32_ulps = {"numpy": 1.0, "jax": 2.7, "torch": 3.1}[sigmoid.framework]
    error = (sigmoid(x).double() - truth).abs()
    limit = float32_ulps * ulp(truth, torch.float32)
    if dtype != torch.float32:
        limit = limit + 0.5 * ulp(truth, dtype)
    assert (error / limit).max() <= 1.0


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_sigmoid_at_the_ends(sigmoid: Implementation, dtype: torch.dtype) -> None:
    x = torch.tensor([-torch.inf, -3e4, -200.0, 0.0, -0.0, 200.0, torch.inf, torch.nan], dtype=dtype)
    expected = torch.tensor([0.0, 0.0, 0.0, 0.5, 0.5, 1.0, 1.0, torch.nan], dtype=dtype)
    assert torch.equal(sigmoid(x).nan_to_num(7.0), expected.nan_to_num(7.0))


@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (2, 3, 5, 7)])
def test_sigmoid_of_any_shape(sigmoid: Implementation, shape: tuple[int, ...]) -> None:
    x = normal(*shape)
    torch.testing.assert_close(sigmoid(x), torch.sigmoid(x))
    if len(shape) == 4:
        torch.testing.assert_close(sigmoid(x.permute(3, 1, 0, 2)), torch.sigmoid(x.permute(3, 1, 0, 2)))
        torch.testing.assert_close(sigmoid(x[:, ::2, 1:]), torch.sigmoid(x[:, ::2, 1:]))


def test_sigmoid_names_the_dtype(sigmoid: Implementation) -> None:
    with pytest.raises(ValueError, match=r"sigmoid: x must be float32, float16, bfloat16 or float64; got int32"):
        sigmoid(normal(4).int())
