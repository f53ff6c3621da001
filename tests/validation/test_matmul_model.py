"""The fit of the model of matmul plans, and the short list that it is compared with."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from cuda_ref.matmul import _model, _model_tf32_float8
from cuda_ref.matmul._rates import Rates
from cuda_ref.matmul._tiles import Problem, candidates
from validation import matmul_model
from validation.matmul_plan_tables import FACTS, Timed, name, predicted_us, read
from validation.matmul_short_list import estimated_us, is_listed

SHAPES = list(itertools.product((5, 300), (8, 2000), (64, 4096)))


def timed(shape: tuple[int, int, int], costs: _model.Costs) -> Timed:
    """A shape whose plans take the times that these constants predict."""
    x = Problem(*shape, False, False, 132)
    return Timed(shape, x, Rates(), 10.0, {name(each): _model.predicted_us(each, x, costs) for each in candidates(x)})


@pytest.mark.thorough
def test_a_fit_finds_constants_that_choose_better() -> None:
    device = _model.H200._replace(mma_launch_us=9.0, stream_launch_us=9.0, skinny_launch_us=0.5)
    shapes = [timed(shape, device) for shape in SHAPES]
    before = matmul_model.Fit(shapes).update(_model.H200)
    found = matmul_model.fit(shapes, _model.H200, 1)
    assert matmul_model.Fit(shapes).update(found) < before - 0.01
    assert (
        matmul_model.quality(shapes, device, Rates())
        == "8 shapes: chosen plan, of the best: geometric mean 1.0000, worst 1.000"
    )


def test_a_constant_changes_the_times_of_the_kernels_that_it_names() -> None:
    """A constant that is missing in DEPENDS counts for all kernels."""
    shapes = [timed(shape, _model.H200) for shape in SHAPES[:2]]
    for constant in _model.Costs._fields:
        changed = _model.H200._replace(**{constant: getattr(_model.H200, constant) * 1.5})
        whole, part = matmul_model.Fit(shapes), matmul_model.Fit(shapes)
        whole.update(changed)
        part.update(_model.H200)
        part.update(changed, constant)
        assert part.predicted == whole.predicted, constant


def test_the_short_list_estimates_every_plan() -> None:
    for shape in SHAPES:
        x = Problem(*shape, False, True, 132, a_dense=True)
        plans = list(candidates(x))
        assert any(is_listed(each) for each in plans)
        assert all(0 < estimated_us(each, x, Rates("another", 0.9, 0.7)) < 1e5 for each in plans)
        for kernel in ("wgmma32", "wgmma8"):
            other = _model_tf32_float8.Problem(kernel, *shape, 0, 132, kernel == "wgmma32" and min(shape) <= 8)
            assert all(estimated_us(each, other, Rates()) > 0 for each in _model_tf32_float8.candidates(other))


@pytest.mark.parametrize(("precision", "kernel"), [("tf32", "wgmma32"), ("fast", "wgmma8"), ("promoted", "wgmma8")])
def test_files_of_another_device_and_precision(tmp_path: Path, precision: str, kernel: str) -> None:
    path = tmp_path / "plans.csv"
    facts = "0,0,132,0,0,0,1,0"
    begin = f"64,512,1024,{'nn' if precision == 'tf32' else 'nt'},{precision},{facts},NVIDIA H100,0.9,0.7"
    path.write_text(
        f"M,N,K,layout,precision,{','.join(FACTS)},device,clock,dram,plan,us,samples,error\n"
        f"{begin},torch,9,4,0\n{begin},{kernel}/0/1,8,4,0\n{begin},{kernel}/2/1,7,4,0\n"
    )
    [found] = read(path)
    assert found.rates == Rates("NVIDIA H100", 0.9, 0.7)
    assert found.x.kernel == kernel
    assert found.x.promoted == (precision == "promoted")
    assert (found.best, found.best_ratio(f"{kernel}/0/1")) == (f"{kernel}/2/1", 7 / 8)
    usual = [predicted_us(_plan, found.x, Rates()) for _plan in _model_tf32_float8.candidates(found.x)]
    slower = [predicted_us(_plan, found.x, found.rates) for _plan in _model_tf32_float8.candidates(found.x)]
    assert all(a < b for a, b in zip(usual, slower, strict=True))
