"""The tables of the implementations of matmul over shapes."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg

from suite import ops
from validation import matmul_lines, matmul_plot

ROWS = """M,N,K,layout,dtype,precision,line,us,samples,error,kernels
4096,4096,4096,nn,bfloat16,ieee,torch,180,8,0,nvjet 180.0
4096,4096,4096,nn,bfloat16,ieee,jax,170,8,0,gemm 170.0
4096,4096,4096,nn,bfloat16,ieee,triton,200,8,0,matmul_kernel 200.0
4096,4096,4096,nn,bfloat16,ieee,triton/gluon,160,8,0,matmul_kernel 160.0
20,30,40,nt,float16,ieee,torch,4,8,0,gemm 4.0
20,30,40,nt,float16,ieee,triton,2,8,0,matmul_kernel 1.5 + add_parts_kernel 0.5
7,7,7,nn,bfloat16,ieee,triton,2,8,0,matmul_kernel 2.0
"""


def test_ratios_are_to_cublas_and_of_the_best_to_the_best_vendor(tmp_path: Path) -> None:
    path = tmp_path / "list.csv"
    path.write_text(ROWS)
    timed = matmul_lines.read(path)
    assert [each.text for each in timed] == ["4096 x 4096 x 4096", "20 x 30 x 40 float16 nt"]
    assert timed[0].ratio("triton") == 0.9
    assert (timed[0].best, timed[0].best_ratio) == ("triton/gluon", 170 / 160)
    text = matmul_lines.tables({"list": timed})
    assert "1.342 (0.900)" in text  # the mean of 0.9 and 2, and the worst
    assert "4096 x 4096 x 4096: 0.900, 20 x 30 x 40 float16 nt: 2.000" in text


class Adapter:
    def wait(self, result: Any) -> None: ...

    def to_torch(self, array: torch.Tensor) -> torch.Tensor:
        return array


def line(result: float | Exception) -> matmul_lines.Line:
    def function() -> torch.Tensor:
        if isinstance(result, Exception):
            raise result
        return torch.tensor([result])

    return matmul_lines.Line(SimpleNamespace(adapter=Adapter()), function, (), {})  # type: ignore[arg-type]


def test_wrong_and_refusing_lines_are_not_timed(capsys: pytest.CaptureFixture[str]) -> None:
    found = {
        "torch": line(2.0),
        "right": line(2.001),
        "wrong": line(3.0),
        "refuses": line(NotImplementedError("too long")),
    }
    case = ops.get("matmul").case((1, 1, 8), "bfloat16")
    errors = matmul_lines.compared(found, case)
    assert list(found) == ["torch", "right"]
    assert errors["right"] == pytest.approx(0.0005, rel=0.01)
    printed = capsys.readouterr().out
    assert "WRONG M=1,N=1,K=8 wrong: 0.5" in printed
    assert "refuses is left out: too long" in printed


def test_the_kernels_of_the_median_sample() -> None:
    def sample(us: float, *spans: tuple[str, int, int]) -> Any:
        return SimpleNamespace(us=us, activities=[SimpleNamespace(name=n, start=b, end=e) for n, b, e in spans])

    samples = [sample(9), sample(3, ("void gemm<int>(float*)", 0, 2000), ("add", 2500, 3500)), sample(1)]
    assert matmul_lines.kernels(samples) == "gemm 2.0 + add 1.0"


def test_the_plot_names_kinds_and_its_legend_covers_no_panel(tmp_path: Path) -> None:
    path = tmp_path / "draws_x.csv"
    path.write_text(ROWS)
    rows = matmul_lines.plotted({"draws_x": matmul_lines.read(path)})
    assert list(rows) == ["triton", "triton/gluon"]
    figure = matmul_plot.figure_of(rows)
    FigureCanvasAgg(figure).draw()  # type: ignore[no-untyped-call]  # places the legend
    (legend,) = figure.legends
    assert {text.get_text() for text in legend.get_texts()} == {"bfloat16, nn", "float16, nt"}
    box = legend.get_window_extent()
    assert not any(box.overlaps(ax.get_window_extent()) for ax in figure.axes)
    assert all(ax.get_xlabel() for ax in figure.axes)
