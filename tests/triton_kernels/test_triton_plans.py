"""The models that choose the plans of matmul in Triton and Gluon."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from triton_kernels import _plan_matmul as pointers
from triton_kernels import _plan_matmul_gluon as gluon
from triton_kernels._few import Few

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


def test_long_aligned_products_are_never_left_to_pointers() -> None:
    aligned = gluon.Problem(4096, 4096, 4096, False, False, False, 132)
    assert aligned.share_of_pointers == 0
    assert 0 < aligned._replace(a_copied=True).share_of_pointers < 1
    assert aligned._replace(M=1).share_of_pointers == aligned._replace(M=64, N=64).share_of_pointers == 1
