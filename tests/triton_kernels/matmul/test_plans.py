"""The models that choose the plans of matmul in Triton and Gluon."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from triton_kernels._runtime.configs import Device
from triton_kernels.matmul import _plan as pointers
from triton_kernels.matmul import _plan_gluon as gluon
from triton_kernels.matmul import auto
from triton_kernels.matmul._few import Few

H200 = Device(132, 1980.0, 4.917e6)
SHAPES = ((1, 1, 1), (1, 4096, 4096), (16, 14336, 4096), (128, 128, 32768), (4095, 4097, 4099), (4096, 4096, 4096))


def problem(M: int, N: int, K: int, *, odd: bool = False, along: bool | None = True) -> pointers.Problem:
    return pointers.Problem(M, N, K, odd, odd, odd, H200, along)


def problems(shape: tuple[int, int, int]) -> Iterator[pointers.Problem]:
    for odd, along in ((True, False), (False, False), (False, True)):
        yield problem(*shape, odd=odd, along=along)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_every_plan_takes_time_and_the_best_one_least(shape: tuple[int, int, int]) -> None:
    for x in problems(shape):
        for module in (pointers, gluon):
            times = [module.predicted_us(plan, x) for plan in module.candidates(x)]  # type: ignore[attr-defined]
            assert min(times) > 0
            assert module.best_of(x)[1] == min(times)  # type: ignore[attr-defined]


def test_long_sums_of_few_tiles_are_divided() -> None:
    for x in problems((128, 128, 32768)):
        assert pointers.best_of(x)[0].parts > 4
        assert gluon.best_of(x)[0].parts > 4
    for x in problems((4096, 4096, 4096)):
        assert pointers.best_of(x)[0].parts == gluon.best_of(x)[0].parts == 1


def test_only_few_rows_or_columns_are_left_to_cuda_cores() -> None:
    for shape in SHAPES:
        for x in problems(shape):
            assert any(isinstance(plan, Few) for plan in pointers.candidates(x)) == (min(shape[:2]) <= 4)
            without = x._replace(along=None)
            assert not any(isinstance(plan, Few) for plan in pointers.candidates(without))


def test_large_odd_matrices_are_copied() -> None:
    plan, _ = pointers.best_of(problem(4095, 4097, 4099, odd=True))
    assert isinstance(plan, pointers.Tiles)
    assert plan.padded


def test_short_products_are_not_timed_by_the_autotuner() -> None:
    short, long = problem(64, 64, 64), problem(4096, 4096, 4096)
    assert len(pointers.best_tiles(short, 1)) == 1
    assert len(gluon.best_tiles(short, 1)) == 1
    assert 1 < len(pointers.best_tiles(long, 1)) <= pointers.TIMED


@pytest.mark.parametrize("M", [1, 64, 65])
def test_the_transpose_is_computed_of_few_rows_only(M: int) -> None:
    x = problem(M, 4096, 4096)
    assert any(plan.transposed for plan in gluon.candidates(x)) == (M <= 64)
    assert x.transposed.transposed == x


@pytest.mark.parametrize("size", [2048, 4096, 8192])
def test_long_aligned_products_are_left_to_tma(size: int) -> None:
    x = problem(size, size, size)
    assert pointers.best_of(x)[1] > gluon.best_of(x)[1] * auto.SHARE


def test_tiles_of_192_columns_where_they_save_a_wave() -> None:
    for shape in ((1536, 1536, 1536), (3072, 3072, 3072), (4096, 2112, 7168)):
        assert gluon.best_of(problem(*shape))[0].tile.N == 192


def test_plans_without_parts_and_without_the_transpose() -> None:
    x = problem(16, 4096, 16384)
    assert gluon.best_of(x)[0].parts > 1
    assert gluon.best_of(x, divides=False)[0].parts == 1
    assert not gluon.best_of(x, turns=False)[0].transposed


def test_a_device_with_a_faster_memory_is_predicted_to_be_faster() -> None:
    x = problem(4, 16384, 16384)
    fast = x._replace(device=H200._replace(memory=2 * H200.memory))
    assert pointers.best_of(fast)[1] < pointers.best_of(x)[1]
    assert gluon.best_of(fast)[1] < gluon.best_of(x)[1]
