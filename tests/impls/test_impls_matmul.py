"""matmul in JAX, PyTorch and NumPy, against float64."""

from __future__ import annotations

from itertools import product

import pytest
import torch
from impls_common import DTYPES, Implementation, implementations, normal, ulp

from suite import frameworks


@pytest.fixture(params=implementations("matmul"))
def matmul(request: pytest.FixtureRequest) -> Implementation:
    return Implementation(*request.param)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(
    ("m", "n", "k"), [(1, 1, 1), (1, 129, 65), (65, 1, 127), (37, 41, 1), (129, 257, 100), (16, 16, 8192)]
)
def test_matmul_sums_in_float32(matmul: Implementation, dtype: torch.dtype, m: int, n: int, k: int) -> None:
    """Within one rounding to the type and a few float32 roundings of |A||B|: 16-bit or tf32 sums fall outside."""
    for a_transposed, b_transposed in product((False, True), repeat=2) if m == 129 else [(False, False)]:
        a = normal(k, m, dtype=dtype, seed=1).T if a_transposed else normal(m, k, dtype=dtype, seed=1)
        b = normal(n, k, dtype=dtype, seed=2).T if b_transposed else normal(k, n, dtype=dtype, seed=2)
        truth = a.double() @ b.double()
        limit = 0.5 * ulp(truth, dtype) + 4.0 * 2.0**-24 * (a.double().abs() @ b.double().abs())
        assert ((matmul(a, b).double() - truth).abs() <= limit).all()


@pytest.mark.parametrize("shape", [(3, 4, 0), (0, 4, 3), (3, 0, 4), (0, 0, 0)])
def test_matmul_of_empty_matrices(matmul: Implementation, shape: tuple[int, int, int]) -> None:
    m, n, k = shape
    for dtype in DTYPES:
        c = matmul(torch.ones(m, k, dtype=dtype), torch.ones(k, n, dtype=dtype))
        assert torch.equal(c, torch.zeros(m, n, dtype=dtype))


def test_matmul_of_slices_and_broadcasts(matmul: Implementation) -> None:
    a, b = normal(40, 60, seed=1)[1::3, ::2], normal(1, 24, seed=2).expand(30, 24)
    torch.testing.assert_close(matmul(a, b), (a.double() @ b.double()).float(), rtol=1e-5, atol=1e-5)


def test_tf32_runs_on_a_gpu_only(matmul: Implementation) -> None:
    a, b = normal(128, 512, seed=1), normal(512, 128, seed=2)
    if matmul.device == "cpu":
        with pytest.raises(NotImplementedError, match="precision 'tf32' needs NVIDIA's tensor cores"):
            matmul(a, b, precision="tf32")
        return
    truth = a.double() @ b.double()
    error = ((matmul(a, b, precision="tf32").double() - truth).norm() / truth.norm()).item()
    assert 2.0**-14 < error < 2.0**-10
    error = ((matmul(a, b, precision="ieee").double() - truth).norm() / truth.norm()).item()
    assert error < 2.0**-20


@pytest.mark.parametrize("dtype", DTYPES[1:], ids=str)
def test_tf32_is_for_float32(matmul: Implementation, dtype: torch.dtype) -> None:
    a = normal(4, 4, dtype=dtype)
    with pytest.raises(ValueError, match=r"a is b?float16, so precision must be 'ieee'; got 'tf32'"):
        matmul(a, a, precision="tf32")
    with pytest.raises(ValueError, match="so precision must be 'ieee'; got 'bf16x3'"):
        matmul(a, a, precision="bf16x3")


FLOAT8_ERRORS = [
    ("float8", (None, 0.5), "promoted", "so scale_a must be float32 of shape"),
    ("float8", (0.5, [0.5]), "promoted", "so scale_b must be float32 of shape"),
    ("float32", (0.5, 0.5), "ieee", "so scale_a must be None; got float32"),
    ("float8", (0.5, 0.5), "ieee", "precision must be 'promoted' or 'fast'"),
    ("float32", (), "fast", "precision must be 'ieee' or 'tf32'"),
]


@pytest.mark.parametrize(("kind", "scales", "precision", "message"), FLOAT8_ERRORS)
def test_float8_scales_and_precisions(
    matmul: Implementation, kind: str, scales: tuple[object, ...], precision: str, message: str
) -> None:
    a = normal(16, 16).to(torch.float8_e4m3fn if kind == "float8" else torch.float32)
    given = [a, a.T, *(None if each is None else torch.tensor(each) for each in scales)]
    native = frameworks.get(matmul.framework).to_native
    arguments = [each if each is None else native(each.to(matmul.device)) for each in given]
    with pytest.raises(ValueError, match=message):
        matmul.function(*arguments, precision=precision)
