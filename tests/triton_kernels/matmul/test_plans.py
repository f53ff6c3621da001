"""The models that choose the plans of matmul in Triton and Gluon."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from triton_kernels.matmul import _plan as pointers
from triton_kernels.matmul import _plan_gluon as gluon
from triton_kernels.matmul._few import Few

SHAPES = ((1, 1, 1), (1, 4096, 4096), (16, 14336, 4096), (128, 128, 32768), (4095, 4097, 4099), (4096, 4096, 4096))


def problems(shape: tuple[int, int, int]) -> Iterator[tuple[pointers.Problem, gluon.Problem]]:
    for whole, along in ((False, False), (True, False), (True, True)):
        yield (
            pointers.Problem(*shape, whole, whole, whole, along, 132),
            gluon.Problem(*shape, not whole, not whole, not whole, 132),
        )


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_every_plan_takes_time_and_the_best_one_least(shape: tuple[int, int, int]) -> None:
    for by_pointers, by_tma in problems(shape):
        for module, x in ((pointers, by_pointers), (gluon, by_tma)):
            times = [module.predicted_us(plan, x) for plan in module.candidates(x)]  # type: ignore[attr-defined]
            assert min(times) > 0
            assert module.best_of(x)[1] == min(times)  # type: ignore[attr-defined]


def test_long_sums_of_few_tiles_are_divided() -> None:
    for by_pointers, by_tma in problems((128, 128, 32768)):
        plan, _ = pointers.best_of(by_pointers)
        assert plan.parts > 4
        assert gluon.best_of(by_tma)[0].parts > 4
    for by_pointers, by_tma in problems((4096, 4096, 4096)):
        assert pointers.best_of(by_pointers)[0].parts == gluon.best_of(by_tma)[0].parts == 1


def test_only_few_rows_or_columns_are_left_to_cuda_cores() -> None:
    for shape in SHAPES:
        for x, _ in problems(shape):
            assert any(isinstance(plan, Few) for plan in pointers.candidates(x)) == (min(shape[:2]) <= 4)
            without = x._replace(along=None)
            assert not any(isinstance(plan, Few) for plan in pointers.candidates(without))


def test_large_odd_matrices_are_copied() -> None:
    x = pointers.Problem(4095, 4097, 4099, False, False, False, False, 132)
    plan, _ = pointers.best_of(x)
    assert isinstance(plan, pointers.Tiles)
    assert plan.padded


def test_short_products_are_not_timed_by_the_autotuner() -> None:
    short = pointers.Problem(64, 64, 64, True, True, True, False, 132)
    assert len(pointers.best_tiles(short, 1, False)) == 1
    assert len(gluon.best_tiles(gluon.Problem(64, 64, 64, False, False, False, 132), 1)) == 1
    long = pointers.Problem(4096, 4096, 4096, True, True, True, False, 132)
    assert 1 < len(pointers.best_tiles(long, 1, False)) <= pointers.TIMED


@pytest.mark.parametrize("M", [1, 64, 65])
def test_the_transpose_is_computed_of_few_rows_only(M: int) -> None:
    x = gluon.Problem(M, 4096, 4096, False, False, False, 132)
    assert any(plan.transposed for plan in gluon.candidates(x)) == (M <= 64)
    assert x.transposed.transposed == x


def test_few_columns_of_a_tall_product_are_left_to_pointers() -> None:
    tall = gluon.Problem(100000, 20, 72, False, True, True, 132)
    assert tall.share_of_pointers > 1e9
    assert tall._replace(M=16).share_of_pointers < 1 > tall._replace(N=4096).share_of_pointers


@pytest.mark.parametrize("size", [2048, 4096, 8192])
def test_long_aligned_products_are_not_left_to_pointers(size: int) -> None:
    by_pointers = pointers.best_of(pointers.Problem(size, size, size, True, True, True, True, 132))[1]
    x = gluon.Problem(size, size, size, False, False, False, 132)
    assert by_pointers > gluon.best_of(x)[1] * x.share_of_pointers


def test_tiles_of_192_columns_where_they_save_a_wave() -> None:
    for shape in ((1536, 1536, 1536), (3072, 3072, 3072), (4096, 2112, 7168)):
        assert gluon.best_of(gluon.Problem(*shape, False, False, False, 132))[0].tile.N == 192


def test_plans_without_parts_and_without_the_transpose() -> None:
    x = gluon.Problem(16, 4096, 16384, False, False, False, 132)
    assert gluon.best_of(x)[0].parts > 1
    assert gluon.best_of(x, divides=False)[0].parts == 1
    assert not gluon.best_of(x, turns=False)[0].transposed
