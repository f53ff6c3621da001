"""The program that tabulates error ratios: its verdict and its files; and one whole run."""

from __future__ import annotations

import csv
import io
import math
import re
from pathlib import Path

import pytest

from validation import error_ratio_files as files
from validation import error_ratios
from validation.error_ratio_files import Ratio, Refusal


def ratio(
    value: float | None, *, status: str = "ok", case: str = "N=1", name: str = "triton", known: str = ""
) -> Ratio:
    return Ratio("sigmoid", case, "float32", "ieee", name, status, value, "a\nreason | with bars", known)


def refusal(value: float, reason: str = "value: at [0]", *, agrees: bool = False) -> Refusal:
    return Refusal("matmul", "cuda-matmul-k_tail_dropped", "the last tile of K is left out", agrees, value, reason)


def test_a_group_is_one_implementation_in_one_arithmetic() -> None:
    values = [0.01 * i for i in range(1, 41)]
    found = files.groups([*(ratio(x, case=f"N={x:.2f}") for x in values), ratio(0.5, name="jax")])
    assert [(each.implementation, each.count) for each in found] == [("triton", 40), ("jax", 1)]
    assert found[0].median == pytest.approx(0.205)
    assert found[0].nearly_all == pytest.approx(0.38)
    assert (found[0].largest, found[0].where) == (pytest.approx(0.4), "N=0.40")


@pytest.mark.parametrize(
    ("bad", "passes"),
    [
        (ratio(0.69), True),
        (ratio(0.71), False),
        (ratio(math.inf, status="wrong"), False),
        (ratio(math.inf, status="wrong", known="its library flushes"), True),
        (ratio(None, status="error"), False),
        (ratio(None, status="timeout"), False),
        (ratio(None, status="unsupported"), True),
    ],
    ids=str,
)
def test_it_passes_if_every_ratio_is_at_most_that_of_a_right_kernel(bad: Ratio, passes: bool) -> None:
    assert files.verdict([ratio(0.5), bad], [refusal(1.3)])[0] is passes


def test_nothing_measured_is_not_a_pass() -> None:
    assert not files.verdict([], [])[0]
    assert not files.verdict([ratio(None, status="unsupported")], [])[0]


def test_every_wrong_kernel_must_be_refused() -> None:
    for wrong, passes in (
        (refusal(1.01), True),
        (refusal(0.2, "same buffer: the second call wrote over the result of the first"), True),
        (refusal(0.99, agrees=True), False),
    ):
        assert files.verdict([ratio(0.5)], [wrong])[0] is passes
    assert "1 not refused" in files.verdict([ratio(0.5)], [refusal(0.99, agrees=True)])[1]


def test_the_files() -> None:
    ratios = [ratio(0.5), ratio(math.inf, status="wrong")]
    rows = list(csv.DictReader(io.StringIO(files.to_csv(ratios, Ratio))))
    assert [row["error_ratio"] for row in rows] == ["0.5", "inf"]
    assert rows[0]["reason"] == "a reason | with bars"
    environment = {"device": {"name": "a device"}, "packages": {"torch": "2"}, "command": "error_ratios.py"}
    text = files.markdown(ratios, [refusal(1.3)], environment)
    assert "| triton" in text
    assert "## Not in the table" in text
    assert "## Wrong kernels" in text


def test_the_overview_has_a_line_for_each_operation_of_the_folder(tmp_path: Path) -> None:
    for name, wrong in (("sigmoid", [refusal(1.3), refusal(1.2)]), ("vector_add", [])):
        error_ratios.write(tmp_path, name, [ratio(0.5), ratio(math.inf, status="wrong")], wrong, {})
    text = (tmp_path / "README.md").read_text()
    assert "2 results of right kernels" in text
    assert "| sigmoid | 1 | 0.500 | triton, N=1, float32 | 0 | 1 | 2 | 2 | 1.2 |" in re.sub(" +", " ", text)
    assert "| vector\\_add | 1 | 0.500 | triton, N=1, float32 | 0 | 1 | | | |" in re.sub(" +", " ", text)


def test_cases_are_the_families_and_the_sweep_without_those_for_gpus() -> None:
    every = list(error_ratios.cases("matmul", "cpu", []))
    families = {case.inputs for case in every}
    assert {"normal", "nan", "cancellation"} <= families
    assert "huge" not in families
    assert len(set(every)) == len(every)
    assert {case.inputs for case in error_ratios.cases("matmul", "cpu", ["nan"])} == {"nan"}


@pytest.mark.slow
def test_the_whole_program(tmp_path: Path) -> None:
    arguments = ["--device", "cpu", "--op", "vector_add", "--impl", "numpy", "--inputs", "sizes", "--no-gallery"]
    assert error_ratios.main([*arguments, "--jobs", "2", "--out", str(tmp_path)]) == 0
    assert "passed: 15 results" in (tmp_path / "vector_add" / "error_ratios.md").read_text()
    assert "| vector" in (tmp_path / "README.md").read_text()
    assert len((tmp_path / "vector_add" / "error_ratios.csv").read_text().splitlines()) == 16
