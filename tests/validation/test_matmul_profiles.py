"""The profiles of the worst products."""

from __future__ import annotations

from pathlib import Path

import pytest

from suite.profiling.nsight import DURATION, SHARES, Kernel
from validation import matmul_lines, matmul_profiles

ROWS = """M,N,K,layout,dtype,precision,line,us,samples,error,kernels
4096,4096,4096,nn,bfloat16,ieee,torch,180,8,0,nvjet 180.0
4096,4096,4096,nn,bfloat16,ieee,triton,200,8,0,matmul_kernel 200.0
20,30,40,nn,bfloat16,ieee,torch,4,8,0,gemm 4.0
20,30,40,nn,bfloat16,ieee,triton,2,8,0,matmul_kernel 1.5 + add_parts_kernel 0.5
200,30,40,nn,bfloat16,ieee,torch,9,8,0,gemm 9.0
200,30,40,nn,bfloat16,ieee,jax,4,8,0,fusion 4.0
200,30,40,nn,bfloat16,ieee,triton,8,8,0,matmul_kernel 8.0
200,30,40,nn,bfloat16,ieee,cuda/wgmma,5,8,0,matmul_wgmma 5.0
"""


def kernel(name: str, us: float, tensor: float) -> Kernel:
    shares = {metric: (str(tensor if "tensor" in metric else 10), "%") for metric in SHARES.values()}
    return Kernel(name, {DURATION: (str(us), "us"), **shares})


@pytest.fixture
def timed(tmp_path: Path) -> list[matmul_lines.Timed]:
    path = tmp_path / "list.csv"
    path.write_text(ROWS)
    return matmul_lines.read(path)


def test_the_worst_are_those_whose_best_line_is_the_slowest(timed: list[matmul_lines.Timed]) -> None:
    found = matmul_profiles.worst(timed, 2)
    assert [(each.text, each.best) for each in found] == [
        ("200 x 30 x 40", "cuda/wgmma"),
        ("4096 x 4096 x 4096", "triton"),
    ]


def test_a_call_has_the_kernels_up_to_the_next_spin() -> None:
    spin = kernel("_ZN2at4cuda47_GLOBAL__N__11spin_kernelEl", 1, 0)
    a, b, c = (kernel(name, 1, 0) for name in "abc")
    assert matmul_profiles.split([a, b, spin, c, spin]) == [[a, b], [c]]


def test_each_product_has_a_row_of_ours_and_one_of_the_best_vendor(timed: list[matmul_lines.Timed]) -> None:
    worst = matmul_profiles.worst(timed, 1)
    made = matmul_profiles.rows(worst, [[kernel("ours", 4, 20), kernel("add", 1, 70)], [kernel("fusion", 4, 80)]])
    assert [(row["line"], row["kernel"], row["of_vendor"]) for row in made] == [
        ("cuda/wgmma", "ours", "0.800"),
        ("jax", "fusion", "1.000"),
    ]
    (cells,) = [
        [cell.strip() for cell in line.split("|")[1:7]] for line in matmul_profiles.table(made).splitlines()[2:]
    ]
    assert cells == ["200 x 30 x 40", "cuda/wgmma; jax", "5.0; 4.0", "0.800", "30%; 80%", "10%; 10%"]
    assert {*made[0]} == {*matmul_profiles.HEAD}
