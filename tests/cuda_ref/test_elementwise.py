"""vector_add, matrix_add and sigmoid: sizes, layouts, alignments, special values, and more than 2^31 elements."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import pytest
import torch
from thinning import crossed, named
from torch import Tensor

from cuda_ref.matrix_add import matrix_add as matrix_add_plain
from cuda_ref.matrix_add.tiles import matrix_add as matrix_add_tiles
from cuda_ref.sigmoid import sigmoid as sigmoid_plain
from cuda_ref.sigmoid.vectorized import sigmoid as sigmoid_vectorized
from cuda_ref.vector_add import vector_add as vector_add_plain
from cuda_ref.vector_add.vectorized import vector_add as vector_add_vectorized
from suite.numerics.formats import ulp

DTYPES = (torch.float32, torch.float16, torch.bfloat16)
INF, NAN = math.inf, math.nan

Random = Callable[..., Tensor]
Agrees = Callable[..., Tensor]
Kernel = Callable[..., Tensor]
KERNELS = {
    "vector_add": {"plain": vector_add_plain, "vectorized": vector_add_vectorized},
    "matrix_add": {"plain": matrix_add_plain, "tiles": matrix_add_tiles},
    "sigmoid": {"plain": sigmoid_plain, "vectorized": sigmoid_vectorized},
}
pytestmark = pytest.mark.usefixtures("nan_outputs")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Tests of an operation run with each of its kernels."""
    for name, kernels in KERNELS.items():
        if name in metafunc.fixturenames:
            metafunc.parametrize(name, kernels.values(), ids=list(kernels))


# vector_add


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_vector_add_sizes_and_alignments(
    vector_add: Kernel, random: Random, dtype: torch.dtype, agrees: Agrees
) -> None:
    for N, shift in itertools.product((1, 3, 4, 7, 8, 9, 15, 16, 17, 4095, 4096, 4101), (0, 1, 8)):
        agrees(vector_add, random(N, dtype=dtype, shift=shift), random(N, dtype=dtype, shift=8))
        agrees(vector_add, random(N, dtype=dtype, shift=shift), random(N, dtype=dtype, shift=shift))


def test_vector_add_strides(vector_add: Kernel, random: Random, agrees: Agrees) -> None:
    a = random(2001)
    agrees(vector_add, a[::2], random(1001))
    agrees(vector_add, a[::2], a[:1].expand(1001))
    agrees(vector_add, random(1001, 3)[:, 1], a[1000:])


def test_vector_add_specials(vector_add: Kernel, device: str) -> None:
    a = torch.tensor([INF, INF, NAN, -0.0, 3e38, 1e-45, 65504.0], device=device)
    b = torch.tensor([1.0, -INF, 1.0, -0.0, 3e38, -2e-45, 16.0], device=device)
    for dtype in DTYPES:
        x, y = a.to(dtype), b.to(dtype)
        assert torch.equal(vector_add(x, y).nan_to_num(7.0), (x + y).nan_to_num(7.0))


# matrix_add


def matrix_layouts(random: Random, M: int, N: int, dtype: torch.dtype) -> dict[str, Tensor]:
    """One shape in all layouts that the kernels distinguish."""
    return {
        "rows": random(M, N, dtype=dtype, shift=0, pad=0),
        "rows in a wider matrix": random(M, N, dtype=dtype, pad=8 + -N % 8),
        "misaligned rows": random(M, N, dtype=dtype, shift=1),
        "columns": random(N, M, dtype=dtype, shift=0, pad=0).t(),
        "columns in a taller matrix": random(N, M, dtype=dtype, pad=8 + -M % 8).t(),
        "misaligned columns": random(N, M, dtype=dtype, shift=3).t(),
        "one row repeated": random(1, N, dtype=dtype).expand(M, N),
        "one column repeated": random(M, 1, dtype=dtype).expand(M, N),
        "every other row": random(2 * M, N, dtype=dtype)[::2],
        "every third column": random(M, 3 * N, dtype=dtype)[:, ::3],
        "one number": random(1, 1, dtype=dtype).expand(M, N),
    }


@pytest.mark.parametrize(
    ("dtype", "shape"),
    crossed(
        named(DTYPES),
        named([(1, 1), (1, 40), (40, 1), (8, 8), (72, 136), (64, 64), (70, 33), (70, 40), (129, 3)]),
    ),
)
def test_matrix_add_layouts(
    matrix_add: Kernel, random: Random, shape: tuple[int, int], dtype: torch.dtype, agrees: Agrees
) -> None:
    first, second = (matrix_layouts(random, *shape, dtype) for _ in range(2))
    for a, b in itertools.product(first.values(), second.values()):
        agrees(matrix_add, a, b)


@pytest.mark.thorough
def test_matrix_add_takes_several_tiles_a_block(matrix_add: Kernel, device: str) -> None:
    """With more rows than a grid holds, blocks reuse their tile in shared memory."""
    for tall, N in ((65535 * 32 + 37, 2), (65535 * 64 + 128, 8)):
        rows = torch.randn(tall, N, device=device, dtype=torch.bfloat16)
        columns = torch.randn(N, tall, device=device, dtype=torch.bfloat16).t()
        for a, b in ((rows, columns), (columns, columns)):
            assert torch.equal(matrix_add(a, b), a + b)


# sigmoid


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_sigmoid_of_every_16_bit_number(sigmoid: Kernel, device: str, dtype: torch.dtype) -> None:
    x = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16).view(dtype).to(device)
    out, truth = sigmoid(x).double(), exact_sigmoid(x)
    number = ~x.isnan()
    assert torch.equal(out.isnan(), ~number)
    ulps = (out - truth).abs() / ulp(truth.nan_to_num(), str(dtype).removeprefix("torch."))
    assert ulps[number].max() <= 0.55


def test_sigmoid_float32_to_the_ends(sigmoid: Kernel, device: str) -> None:
    """All exponents, both signs, and densely where the result is subnormal or rounds to 1."""
    exponents = torch.arange(1, 2**31 - 2**23, 9973, dtype=torch.int32).view(torch.float32)
    x = torch.cat([exponents, -exponents, torch.linspace(-104, -86, 100_001), torch.linspace(14, 18, 10_001)])
    x = torch.cat([x, torch.tensor([0.0, -0.0, 3.4e38, -3.4e38, INF, -INF])]).to(device)
    out, truth = sigmoid(x).double(), exact_sigmoid(x)
    assert ((out - truth).abs() / ulp(truth, "float32")).max() <= 1.9
    assert sigmoid(torch.tensor([NAN, -NAN], device=device)).isnan().all()


def exact_sigmoid(x: Tensor) -> Tensor:
    e = torch.exp(-x.double().abs())
    return torch.where(x < 0, e, 1.0) / (1.0 + e)


def test_sigmoid_shapes_and_strides(sigmoid: Kernel, random: Random, agrees: Agrees) -> None:
    x = random(6, 10, 24)
    for view in (x, x[0, 0, 0], x.permute(2, 0, 1), x[:, 3], x[:, :, 1::2], x[0, 0, :1].expand(5, 7), x[0, 1, 1:6]):
        assert agrees(sigmoid, view).shape == view.shape


@pytest.mark.gpu
def test_more_than_2_to_the_31_elements(
    vector_add: Kernel, matrix_add: Kernel, sigmoid: Kernel, device: str, needs_memory: Callable[[int], None]
) -> None:
    needs_memory(40)
    N = 3_000_000_001
    x = torch.ones(N, dtype=torch.bfloat16, device=device)
    for out, expected in ((vector_add(x, x), 2.0), (sigmoid(x), sigmoid(x[:1]).item())):
        assert (out == expected).all()
    matrix = x[: 65536 * 45760].view(65536, 45760)
    for other in (matrix, matrix.view(45760, 65536).t()):
        assert (matrix_add(matrix, other) == 2.0).all()


@pytest.mark.gpu
def test_matrix_add_of_more_rows_than_a_grid_holds(
    matrix_add: Kernel, device: str, needs_memory: Callable[[int], None]
) -> None:
    needs_memory(16)
    tall = 65535 * 512 + 8  # more than any kernel takes in one step
    wide = torch.randn(8, tall, device=device).half()
    rows = wide.t().contiguous()
    for a, b in ((rows, rows), (rows, wide.t()), (wide.t(), wide.t())):
        assert torch.equal(matrix_add(a, b), rows + rows)
