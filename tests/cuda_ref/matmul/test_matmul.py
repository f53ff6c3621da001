"""The matmul kernels on CUDA cores: layouts, edges, tf32, special values, and the order of sums."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import pytest
import torch
from thinning import crossed, named
from torch import Tensor

from cuda_ref.matmul import matmul as matmul_naive
from cuda_ref.matmul.async_copies import matmul as matmul_async_copies
from cuda_ref.matmul.double_buffered import matmul as matmul_double_buffered
from cuda_ref.matmul.register_tiles import matmul as matmul_register_tiles
from cuda_ref.matmul.tiled import matmul as matmul_tiled
from cuda_ref.matmul.uncoalesced import matmul as matmul_uncoalesced

DTYPES = (torch.float32, torch.float16, torch.bfloat16)
MATMULS = [
    pytest.param(matmul_naive, id="naive"),
    pytest.param(matmul_uncoalesced, id="uncoalesced"),
    pytest.param(matmul_tiled, id="tiled"),
    pytest.param(matmul_register_tiles, id="register_tiles"),
    pytest.param(matmul_double_buffered, id="double_buffered"),
]
FLOAT32_MATMULS = [*MATMULS, pytest.param(matmul_async_copies, id="async_copies")]
INF, NAN = math.inf, math.nan

Random = Callable[..., Tensor]
Agrees = Callable[..., Tensor]
pytestmark = pytest.mark.usefixtures("nan_outputs")


def matmul_layouts(random: Random, rows: int, columns: int, dtype: torch.dtype) -> list[Tensor]:
    return [
        random(rows, columns, dtype=dtype),
        random(columns, rows, dtype=dtype, shift=1).t(),
        random(2 * rows, 3 * columns, dtype=dtype)[1::2, ::3],
        random(1, columns, dtype=dtype).expand(rows, columns),
        random(rows, 1, dtype=dtype).expand(rows, columns),
    ]


@pytest.mark.parametrize(("matmul", "dtype"), crossed({each.id: each.values[0] for each in MATMULS}, named(DTYPES)))
def test_matmul_layouts(matmul: Callable[..., Tensor], random: Random, dtype: torch.dtype, agrees: Agrees) -> None:
    for M, N, K in ((1, 1, 1), (1, 35, 33), (34, 1, 70), (40, 37, 1), (33, 65, 31)):
        left, right = matmul_layouts(random, M, K, dtype), matmul_layouts(random, K, N, dtype)
        for a, b in itertools.product(left, right):
            agrees(matmul, a, b)


@pytest.mark.parametrize("matmul", MATMULS)
def test_matmul_tf32_rounds_factors_to_nearest(matmul: Callable[..., Tensor], random: Random, agrees: Agrees) -> None:
    a, b = random(33, 65), random(65, 40)
    agrees(matmul, a, b, precision="tf32")
    assert torch.equal(matmul(a, b, precision="tf32"), matmul(to_tf32(a), to_tf32(b)))
    assert not torch.equal(matmul(a, b, precision="tf32"), matmul(a, b))
    x = torch.tensor([[1 + 2**-11, -1 - 2**-11, 1 + 2**-11 - 2**-23, 3.4e38, -3.4028235e38, INF, -INF]]).to(a.device)
    expected = torch.tensor([[1 + 2**-10, -1 - 2**-10, 1.0, to_tf32(x)[0, 3].item(), -INF, INF, -INF]]).to(a.device)
    one = torch.ones(1, 1, device=a.device)
    assert torch.equal(matmul(one, x, precision="tf32"), expected)
    for bits in (0x7FC00000, 0x7FFFFFFF, 0x7F800001):  # a carry out of a NaN would make it a number
        nan = torch.tensor([[bits]], dtype=torch.int32).view(torch.float32).to(a.device)
        assert matmul(one, nan, precision="tf32").isnan().all()


def to_tf32(x: Tensor) -> Tensor:
    """To 11 significant bits, ties away from zero, by exact arithmetic in float64."""
    significand, exponent = torch.frexp(x.double())
    units = torch.ldexp(significand.abs(), torch.tensor(11, device=x.device)).add(0.5).floor()
    return torch.copysign(torch.ldexp(units, exponent - 11), x.double()).float()


def test_matmul_tiled_adds_in_the_order_of_the_definition(random: Random) -> None:
    a, b = random(40, 100), random(100, 50)
    assert torch.equal(matmul_naive(a, b), matmul_tiled(a, b))


def test_matmul_async_copies_equals_double_buffered_bitwise(random: Random) -> None:
    """One tile and many, whole and overhanging, with fewer steps than stages and with more."""
    for M, N, K in ((1, 1, 1), (1, 35, 33), (40, 37, 1), (64, 128, 16), (64, 128, 64), (66, 130, 90), (128, 132, 96)):
        left, right = (matmul_layouts(random, *shape, torch.float32) for shape in ((M, K), (K, N)))
        for a, b in itertools.product(left, right):
            assert torch.equal(matmul_async_copies(a, b), matmul_double_buffered(a, b))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_matmul_async_copies_converts_nothing(random: Random, dtype: torch.dtype) -> None:
    for x, precision in ((random(4, 4, dtype=dtype), "ieee"), (random(4, 4), "tf32")):
        with pytest.raises(NotImplementedError, match='float32 and "ieee" only'):
            matmul_async_copies(x, x, precision=precision)


@pytest.mark.parametrize("matmul", FLOAT32_MATMULS)
def test_matmul_nan_and_infinity_stay_in_their_rows_and_columns(matmul: Callable[..., Tensor], random: Random) -> None:
    a, b = random(40, 50), random(50, 45)
    a[3, 7], a[20, 0], b[11, 44] = NAN, INF, -INF
    agrees_at = torch.ones(40, 45, dtype=torch.bool, device=a.device)
    agrees_at[3], agrees_at[20], agrees_at[:, 44] = False, False, False
    assert torch.equal(matmul(a, b).isfinite(), agrees_at)


@pytest.mark.parametrize("matmul", MATMULS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_matmul_of_empty_matrices(matmul: Callable[..., Tensor], device: str, dtype: torch.dtype) -> None:
    def empty(*shape: int) -> Tensor:
        return torch.empty(shape, dtype=dtype, device=device)

    assert matmul(empty(0, 5), empty(5, 4)).shape == (0, 4)
    assert matmul(empty(4, 5), empty(5, 0)).shape == (4, 0)
    assert torch.equal(matmul(empty(40, 0), empty(0, 33)), torch.zeros(40, 33, dtype=dtype, device=device))


def test_matmul_async_copies_of_empty_matrices(device: str) -> None:
    a, b = torch.empty(40, 0, device=device), torch.empty(0, 33, device=device)
    assert torch.equal(matmul_async_copies(a, b), torch.zeros(40, 33, device=device))


@pytest.mark.gpu
def test_matmul_of_more_rows_than_a_grid_holds(
    device: str, agrees: Agrees, needs_memory: Callable[[int], None]
) -> None:
    needs_memory(16)
    a = torch.randn(65535 * 32 + 3, 8, device=device).half()
    agrees(matmul_naive, a[: 65535 * 8 + 3], a[:8])
    agrees(matmul_tiled, a, a[:8])


@pytest.mark.gpu
def test_matmul_of_more_than_2_to_the_31_rows(device: str, needs_memory: Callable[[int], None]) -> None:
    needs_memory(40)
    x = torch.ones(3_000_000_001, dtype=torch.bfloat16, device=device)
    assert (matmul_naive(x[:, None][:, :0], x[None, :1][:0]) == 0.0).all()
