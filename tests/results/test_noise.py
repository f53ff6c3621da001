"""Rows that are noise: flagged, and not ranked."""

from __future__ import annotations

from pathlib import Path

import pytest

from suite.results import render
from suite.results.csv_file import read_rows, to_csv
from suite.results.groups import standing
from suite.results.noise import mark_noisy, noise
from suite.results.row import Row
from tests.results.rows import row


def timed(name: str, us: float, width: float, **values: object) -> Row:
    ends = {"device_us_low": us * (1 - width), "device_us_high": us * (1 + width)}
    return row(name, device_us=us, recorder="wall", samples=20, **{**ends, **values})


def vendor(us: float, width: float) -> Row:
    return timed("torch", us, width, vendor="PyTorch", vs_best=1.0, vs_best_low=1.0, vs_best_high=1.0)


def against(us: float, width: float, vs_best: float) -> Row:
    return timed("numpy", us, width, vs_best=vs_best, vs_best_low=0.9 * vs_best, vs_best_high=1.1 * vs_best)


@pytest.mark.parametrize(("width", "limit", "noisy"), [(0.049, 0.05, False), (0.051, 0.05, True), (0.2, 0.3, False)])
def test_a_row_is_noisy_if_its_interval_is_wider_than_the_limit(width: float, limit: float, noisy: bool) -> None:
    found = timed("a", 100.0, width)
    assert noise(found) == pytest.approx(width)
    mark_noisy([found], limit)
    assert found.noisy == noisy


def test_a_time_without_an_interval_is_noisy_and_a_row_without_a_time_is_not() -> None:
    without, untimed = row(device_us=1.0), row(status="unsupported")
    mark_noisy([without, untimed], 0.05)
    assert (without.noisy, untimed.noisy) == (True, False)


def test_noise_has_no_star_and_no_ratio_and_keeps_its_numbers() -> None:
    """A row `torch * 212.5 us +- 2,195 %` once won a case."""
    rows = [vendor(212.5, 0.9), against(300.0, 0.01, 0.7), timed("jax", 400.0, 0.02)]
    mark_noisy(rows, 0.05)
    assert [each.noisy for each in rows] == [True, False, False]
    assert standing(rows).winner is None, "torch may be faster than numpy"
    heads, torch, numpy, *_ = [line.plain for line in render.case_lines(rows, 120)][1:]
    assert "vs best" not in heads, "the row that it is compared with is noise"
    assert torch.split() == ["torch", "ok", "212.5", "+-90.0%", "1"]
    assert numpy.split() == ["numpy", "ok", "300.0", "+-1.0%"]
    assert (rows[0].vs_best, rows[1].vs_best) == (1.0, 0.7)
    assert standing([timed("a", 1.0, 0.9, noisy=True), timed("b", 2.0, 0.9, noisy=True)]).winner is None


def test_a_slower_row_with_a_ratio_above_1_is_noisy() -> None:
    """A slower row had vs_best 1.32: the machine was slower in rounds in which only one of the two took part."""
    rows = [vendor(100.0, 0.01), against(120.0, 0.01, 1.32)]
    mark_noisy(rows, 0.05)
    assert [each.noisy for each in rows] == [False, True]
    mark_noisy(rows, 0.05)
    assert rows[1].remarks.startswith("the time and the ratio to the best vendor disagree")
    assert rows[1].remarks.count("disagree") == 1
    mark_noisy(rows, 0.7)
    assert (rows[1].noisy, rows[1].remarks) == (False, "")
    close = [vendor(100.0, 0.01), against(101.0, 0.01, 1.01)]
    mark_noisy(close, 0.05)
    assert not any(each.noisy for each in close), "a near tie"


def test_the_end_of_a_run_names_noisy_rows_and_what_to_do() -> None:
    assert render.noise_remark([row()], 0.05) == ""
    text = render.noise_remark([timed(name, 1.0, 0.9, noisy=True) for name in "abcd"], 0.05)
    assert text.startswith("4 noisy rows, not ranked (95% interval wider than +- 5%, or time")
    assert "matmul M=1,N=2,K=3 fp32 a; " in text
    assert " and 1 more. Run again while nothing else uses the machine;" in text
    assert "--max-noise PERCENT" in text


def test_an_older_table_gets_the_mark_from_its_intervals(tmp_path: Path) -> None:
    from tests.results.test_csv_file import without

    path = tmp_path / "t.csv"
    path.write_text(without(to_csv([timed("a", 1.0, 0.9), timed("b", 1.0, 0.01)]), "noisy", "runs"), encoding="utf-8")
    assert [(each.noisy, each.runs) for each in read_rows(path)] == [(True, 1), (False, 1)]
