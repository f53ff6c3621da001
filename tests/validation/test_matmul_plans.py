"""The evaluation of the plans of matmul."""

from __future__ import annotations

from pathlib import Path

import pytest

from validation import matmul_plans

ROWS = """M,N,K,layout,a_copied,b_copied,multiprocessors,plan,us,samples,error
4096,4096,4096,nn,0,0,132,torch,180,4,0
4096,4096,4096,nn,0,0,132,wgmma/1/1,176,4,0
4096,4096,4096,nn,0,0,132,mma/5/1,300,1,0
20,30,40,nn,0,1,132,torch,4,4,0
20,30,40,nn,0,1,132,wgmma/0/1,8,1,0.5
20,30,40,nn,0,1,132,mma/2/1,2,4,0
"""


def test_drawn_shapes_are_those_of_the_seed_and_odd_ones_are_among_them() -> None:
    shapes = matmul_plans.drawn(200, 1)
    assert shapes == matmul_plans.drawn(200, 1) != matmul_plans.drawn(200, 2)
    assert all(1 <= size <= 16384 for shape in shapes for size in shape)
    aligned = sum(all(size % 8 == 0 for size in shape) for shape in shapes)
    assert 60 < aligned < 140
    assert sum(min(shape) <= 16 for shape in shapes) > 40
    assert sum(max(shape) > 4096 for shape in shapes) > 40


def test_the_summary_has_the_choice_of_the_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "plans.csv"
    path.write_text(ROWS)
    matmul_plans.summary(path)
    shown = capsys.readouterr().out
    assert "WRONG (20, 30, 40, False, True, 132) wgmma/0/1: 0.5" in shown
    assert "chosen plan, of the vendor: geometric mean 1.430, worst 1.023" in shown
    assert "chosen plan, of the best plan: geometric mean 1.000" in shown
