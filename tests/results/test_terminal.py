"""Tables on a terminal of 80, 120 and 200 columns, line by line."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from suite.core.errors import UsageError
from suite.core.paths import ROOT
from suite.results import render
from suite.results.render.labels import short_case
from suite.results.render.layout import MIN_WIDTH
from suite.results.render.view import View
from suite.results.row import Row

TF32 = 'matmul: splits float32 with precision="ieee" only; got torch.float32, "tf32"'

WRONG = "value: at [0, 7] got 1.5, expected 1.25 +- 0.01; 900 of 16777216 are wrong"


def row(implementation: str, us: float | None = None, ratio: float | None = None, **values: Any) -> Row:
    """A matmul of 4096 in bfloat16, timed to 0.3%."""
    columns: dict[str, Any] = {}
    if us is not None:
        columns = {"device_us": us, "device_us_low": 0.997 * us, "device_us_high": 1.003 * us, "recorder": "cupti"}
        columns |= {"tflops": 2 * 4096**3 / us / 1e6, "gb_per_s": 3 * 2 * 4096**2 / us / 1e3, "of_limit": 139.0 / us}
        columns |= {"limit": "arithmetic (datasheet)", "error_ratio": 0.415, "samples": 40}
    if ratio is not None:
        columns |= {"vs_best": ratio, "vs_best_low": ratio - 0.002, "vs_best_high": ratio + 0.002}
    case = values.pop("case", "M=4096,N=4096,K=4096")
    return Row("matmul", case, "bfloat16", "ieee", implementation, **({"device": "cuda:0"} | columns | values))


def best_vendor(us: float, **values: Any) -> Row:
    bounds = {"vs_best_low": 1.0, "vs_best_high": 1.0}
    return row("torch", us, 1.0, vendor="PyTorch (cuBLAS on a GPU)", **(bounds | values))


ROWS = [
    row("triton", 186.4, 0.96),
    row("triton/persistent", 180.1, 0.993, noisy=True, device_us_high=250.0),
    row("triton/split", status="unsupported", reason=TF32),
    row("cuda", 3504.0, 0.0511, clock_of_max=0.95, clock_reasons="power cap"),
    row("cuda/skinny", status="unsupported", reason=TF32),
    row("cuda/warp_specialized", status="wrong", error_ratio=3.2, reason=WRONG),
    row("cuda/wgmma", 177.1, 1.01),
    best_vendor(178.9, kernels_run="nvjet_tst_128x256_64x4 [132 x 384]"),
    row("numpy", status="unavailable", reason="numpy not installed: pip install numpy"),
]  # fmt: skip

SNAPSHOTS = Path(__file__).with_name("terminal")


def shown(width: int, view: View | None = None, rows: list[Row] = ROWS) -> list[str]:
    lines = [line.plain for line in render.case_lines(rows, width, view)]
    assert max(map(len, lines)) <= width
    return lines


def names(lines: list[str]) -> list[str]:
    """The implementations of a table without folded heads."""
    return [line.split()[0] for line in lines[2:] if line.split()[0] in {row.implementation for row in ROWS}]


@pytest.mark.parametrize("width", [80, 120, 200])
def test_a_case_looks_as_it_should(width: int) -> None:
    expected = (SNAPSHOTS / f"{width}.txt").read_text(encoding="utf-8")
    assert "\n".join(shown(width)) + "\n" == expected


@pytest.mark.parametrize("width", [1, 60, 80, 100, 120, 200])
@pytest.mark.parametrize("view", [View(), View(wide=True), View(columns=("case", "kernels_run"))], ids=str)
def test_nothing_is_wider_than_the_terminal_and_no_number_is_cut(width: int, view: View) -> None:
    text = "\n".join(shown(max(width, MIN_WIDTH), view))
    if not view.columns:
        for number in ("186.4", "3,504 ^", "0.0511", "0.785", "3.20"):
            assert number in text


def test_a_table_has_at_most_eight_columns() -> None:
    assert re.split(r"\s{2,}", shown(200)[1]) == [
        *("implementation", "status", "device us", "vs best vendor", "of limit", "TFLOP/s", "error / bound", "note"),
    ]


@pytest.mark.parametrize("status", ["wrong", "unsupported", "unavailable"])
def test_a_long_note_is_folded_and_not_cut(status: str) -> None:
    reason = " ".join(f"word{number}" for number in range(40))
    text = " ".join(shown(80, rows=[row("cuda", status=status, reason=reason)]))
    assert "..." not in text
    assert set(reason.split()) <= set(text.split())


def test_noisy_rows_have_no_ratio_and_never_the_star() -> None:
    lines = shown(120)
    assert next(line for line in lines if line.startswith("triton/persistent")).split()[1:] == [
        *("ok", "180.1", "+-19.6%", "763", "0.415", "2")
    ]
    assert [line.split()[0] for line in lines if " * " in line] == ["cuda/wgmma"]


def test_rows_are_sorted_the_best_first_noisy_and_blank_ones_last() -> None:
    assert names(shown(120, View(sort="device_us"))) == [
        *("cuda/warp_specialized", "cuda/wgmma", "torch", "triton", "cuda", "triton/persistent"),
        "torch",  # the line of its kernels
    ]
    assert names(shown(120, View(sort="vs_best")))[1] == "cuda/wgmma"
    assert names(shown(120, View(sort="implementation")))[:2] == ["cuda/warp_specialized", "cuda"]


def test_a_baseline_takes_the_vendors_place() -> None:
    lines = shown(120, View(baseline="triton"))
    assert "vs triton" in lines[1]
    ratios = {line.split()[0]: line for line in lines[:-1]}
    assert " 1.00 " in ratios["triton"]
    assert f" {1 / 0.96:.2f} " in ratios["torch"]
    assert "best vendor" not in lines[0]


def test_named_columns_are_shown_in_their_order() -> None:
    lines = shown(120, View(columns=("samples", "device_us", "execution")))
    assert lines[1].split() == ["implementation", "n", "device", "us", "execution"]


@pytest.mark.parametrize(
    ("view", "message"),
    [
        (View(columns=("speed",)), "--columns: unknown 'speed'; the nearest are "),
        (View(sort="speed"), "--sort: unknown 'speed'; the nearest are "),
        (View(columns=("execution",), wide=True), "--wide shows every column"),
    ],
    ids=["columns", "sort", "both"],
)
def test_columns_that_do_not_exist_are_refused(view: View, message: str) -> None:
    with pytest.raises(UsageError, match=re.escape(message)):
        view.check()


def test_what_nsight_compute_says_is_a_note_and_has_columns() -> None:
    figures = {"ncu_tensor": 0.871, "ncu_dram": 0.11, "ncu_occupancy": 0.18, "ncu_stall": "wait"}
    rows = [best_vendor(170.0), row("cuda/wgmma", 177.1, 1.01, bound_by="tensor cores", **figures)]
    note = "bound by tensor cores; busy: tensor cores 87%, DRAM 11%; achieved occupancy 18%; top stall wait"
    assert f" 1  {note}" in shown(120, rows=rows)
    heads = shown(200, View(wide=True), rows)[1]
    assert "achieved  tensor cores  DRAM" in heads
    assert "issue slots" not in heads


def test_rows_of_two_devices_say_which() -> None:
    rows = [best_vendor(10.0), row("numpy", 100.0, device="cpu")]
    assert "numpy (cpu)" in "\n".join(shown(80, rows=rows))


# All cases


@pytest.mark.parametrize("width", [80, 120, 200])
def test_the_chart_of_a_case(width: int) -> None:
    lines = [line.plain for line in render.chart_lines(ROWS, width)]
    assert max(map(len, lines)) <= width
    assert "\n".join(lines) + "\n" == (SNAPSHOTS / f"chart_{width}.txt").read_text(encoding="utf-8")


def test_the_documents_show_the_chart() -> None:
    chart = (SNAPSHOTS / "chart_80.txt").read_text(encoding="utf-8")
    assert f"```\n{chart}```" in (ROOT / "docs" / "results.md").read_text(encoding="utf-8")


def test_the_chart_of_several_cases_has_our_best_on_the_largest_one() -> None:
    lines = [line.plain for line in render.chart_lines([*smaller(), *ROWS], 80)]
    assert lines[0] == "our best vs the best vendor, largest ranked case of each operation and dtype"
    assert lines[1].startswith("matmul bf16  █")
    assert lines[1].endswith(" 1.01  cuda/wgmma vs torch")


def test_a_chart_without_block_characters() -> None:
    lines = [line.plain for line in render.chart_lines(ROWS, 80, plain=True)]
    assert "\n".join(lines).isascii()
    assert "#" in lines[1]


def test_a_chart_without_a_vendor_is_against_the_fastest() -> None:
    lines = [line.plain for line in render.chart_lines([row("cuda", 100.0), row("triton", 50.0)], 80)]
    assert lines[0] == "speed against the fastest, triton"
    assert [line.split()[-1] for line in lines[1:]] == ["1.00", "0.500"]


@pytest.mark.parametrize(
    "rows",
    [[], [row("a"), row("b")], [row("a", 1.0)], [row("a", 1.0), row("b", 1.0, noisy=True, status="wrong")]],
    ids=["nothing", "untimed", "one", "wrong"],
)
def test_there_is_no_chart_of_fewer_than_two_times(rows: list[Row]) -> None:
    assert render.chart_lines(rows, 80) == []


def smaller() -> list[Row]:
    case = "M=1024,N=1024,K=1024"
    return [row("triton", 11.0, 0.9, case=case), row("cuda/wgmma", 9.0, 1.1, case=case), best_vendor(9.9, case=case)]


@pytest.mark.parametrize("width", [80, 120])
def test_all_cases_together_name_winners_and_the_best_of_each_framework(width: int) -> None:
    lines = [line.plain for line in render.overview_lines([*smaller(), *ROWS], width)]
    table = [line.split() for line in lines]
    winner = next(line for line in table if line[:2] == ["matmul", "M=N=K=1024"])
    assert winner[3:] == ["cuda/wgmma", "1.10", "0.900", "wgmma", "1.10", "1.00"]
    assert " ".join(" ".join(lines[-2:]).split()).endswith(
        "matmul bf16: cuda/wgmma is 1.01x as fast as torch at M=N=K=4096; plain triton 0.96; "
        "ahead of the best vendor in 2 of 2 cases"
    )
    assert max(map(len, lines)) <= width


def test_a_finding_claims_no_difference_that_the_interval_does_not_show() -> None:
    rows = [row("cuda", 100.0, 1.001), best_vendor(100.1)]
    assert render.findings(rows) == [
        "matmul bf16: cuda is 1.00x as fast as torch (no difference within the interval) at M=N=K=4096"
    ]
    assert render.findings([best_vendor(1.0)]) == []
    assert render.findings([row("cuda", 100.0, 1.1, noisy=True), best_vendor(100.1)]) == []


def test_a_case_in_which_a_noisy_row_may_be_faster_has_no_winner() -> None:
    ends = {"device_us_low": 5.0, "device_us_high": 10.0}
    noisy = row("triton", 8.0, 1.2, case="M=1024,N=1024,K=1024", noisy=True, **ends)
    lines = [line.plain for line in render.overview_lines([noisy, *smaller()[1:], *ROWS], 120)]
    assert "none: triton is noisy" in next(line for line in lines if "M=N=K=1024" in line)


def test_without_times_nothing_is_said_of_all_cases() -> None:
    assert render.overview_lines([row("a"), row("b")], 80) == []


@pytest.mark.parametrize(
    ("case", "short"),
    [
        ("M=4096,N=4096,K=4096", "M=N=K=4096"),
        ("B=4,H=16,H_kv=16,S_q=8,S_k=8,D=64,causal", "B=4,H=H_kv=16,S_q=S_k=8,D=64,causal"),
        ("M=1,N=2,K=1,layout=nt,inputs=nan", "M=1,N=2,K=1,layout=nt,inputs=nan"),
        ("M=1,N=1,axis=1", "M=N=1,axis=1"),
    ],
)
def test_neighbours_of_the_same_size_share_it(case: str, short: str) -> None:
    assert short_case(case) == short


def test_all_cases_are_listed_with_the_reason_where_none_wins() -> None:
    """One case has a winner; the others have noisy rows, one row, and no time at all."""
    noisy = {"noisy": True, "case": "M=16,N=16,K=16"}
    rows = [
        *ROWS,
        row("triton", 9.0, **noisy),
        row("jax", 9.0, **noisy),
        row("triton", 9.0, case="M=32,N=32,K=32"),
        row("triton", status="wrong", case="M=64,N=64,K=64"),
    ]
    head, _, *lines = [line.plain for line in render.overview_lines(rows, 120)]
    assert head == "all cases"
    found = {line.split()[1]: " ".join(line.split()[3:]) for line in lines[:4]}
    assert found["M=N=K=16"] == "none: all are noisy"
    assert found["M=N=K=32"].startswith("none: one time")
    assert found["M=N=K=64"] == "none: no time"
