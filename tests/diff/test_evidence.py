"""The evidence for a verdict: vs_best with a control, device_us, or both."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from suite.diff.judge import judge
from tests.diff.rows import H200, as_side, judged, ranked, row


def test_drift_that_all_rows_share_is_not_a_change() -> None:
    """Everything takes 2.5% longer, triton 1.5% more than that: 4% by the clock, 1.5% by its vendor row."""
    base = ranked({"torch": 100.0, "triton": 110.0}, 0.002)
    new = ranked({"torch": 102.5, "triton": 110.0 * 1.025 * 1.015}, 0.002)
    change = judged(base, new)["triton"]
    assert (change.verdict, change.evidence, change.control) == ("SAME", "vs_best", "torch")
    unranked = [[replace(r, vs_best=None, vs_best_low=None, vs_best_high=None) for r in rows] for rows in (base, new)]
    change = judged(*unranked)["triton"]
    assert (change.verdict, change.evidence, change.control) == ("SLOWER", "device_us", "")


def test_drift_does_not_hide_a_change() -> None:
    """All times would be 2% shorter; triton's is 2.7% longer instead."""
    base = ranked({"torch": 100.0, "triton": 110.0}, 0.002)
    assert judged(base, ranked({"torch": 98.0, "triton": 113.0}, 0.002))["triton"].verdict == "SLOWER"


def test_the_control_is_judged_by_its_own_time() -> None:
    base, new = ranked({"torch": 100.0, "triton": 110.0}), ranked({"torch": 120.0, "triton": 110.0})
    change = judged(base, new)["torch"]
    assert (change.verdict, change.evidence, change.control) == ("SLOWER", "device_us", "")


def test_another_best_vendor_row_does_not_change_the_control() -> None:
    """torch and jax change places at the top; nothing else changes."""
    base = ranked({"torch": 100.0, "jax": 101.0, "torch/cudnn": 300.0, "triton": 110.0}, 0.001)
    new = ranked({"torch": 101.5, "jax": 100.0, "torch/cudnn": 300.0, "triton": 110.0}, 0.001)
    changes = judged(base, new)
    assert {name: change.control for name, change in changes.items()} == {
        "torch": "jax",
        "jax": "",
        "torch/cudnn": "jax",
        "triton": "jax",
    }
    assert {change.verdict for change in changes.values()} == {"SAME"}
    ratio = changes["triton"].ratio
    assert ratio is not None
    assert math.exp(ratio.value) == pytest.approx((100 / 110) / (101 / 110)), "jax over triton, in both runs"


@pytest.mark.parametrize(
    ("triton_us", "verdict", "ratio"),
    [
        (100.0, "AMBIGUOUS", 1.0),
        (80.0, "AMBIGUOUS", 1.0),
        (150.0, "SLOWER", 100 / 150),
        (60.0, "FASTER", 80 / 60),
    ],
)
def test_with_a_control_that_moved_a_verdict_has_to_hold_by_both(triton_us: float, verdict: str, ratio: float) -> None:
    """The vendor row is a quarter faster. A row of 100 us may be unchanged or overtaken; one of 80 us may be faster or
    only profit from the same drift."""
    base = ranked({"jax": 100.0, "triton": 100.0}, 0.002)
    new = ranked({"jax": 80.0, "triton": triton_us}, 0.002)
    change = judged(base, new)["triton"]
    assert (change.verdict, change.evidence) == (verdict, "both")
    assert "jax itself is 1.25 times as fast" in change.notes
    assert change.ratio is not None
    assert math.exp(change.ratio.value) == pytest.approx(ratio), "of the two, the one that claims less"


def test_a_control_of_another_version_is_not_enough() -> None:
    base = ranked({"torch": 100.0, "triton": 110.0}, 0.001, versions="torch 2.11.0")
    new = ranked({"torch": 98.0, "triton": 110.0}, 0.001, versions="torch 2.12.0")
    change = judged(base, new)["triton"]
    assert (change.verdict, change.evidence) == ("SAME", "both")
    assert change.notes[0] == "versions of torch: torch 2.11.0 -> torch 2.12.0"
    assert change.ratio is not None
    assert change.ratio.low < math.log(0.98) < change.ratio.high


def test_a_lower_clock_explains_a_longer_time_and_no_more() -> None:
    base, slow = ranked({"torch": 100.0, "triton": 110.0}, 0.001, clock_sm_mhz=1980.0), {"clock_sm_mhz": 1584.0}
    explained = judged(base, ranked({"torch": 125.0, "triton": 137.5}, 0.001, **slow))
    assert explained["torch"].verdict == "AMBIGUOUS"
    assert explained["torch"].notes == ("SM clock: 1980 -> 1584 MHz",)
    assert (explained["triton"].verdict, explained["triton"].evidence) == ("SAME", "vs_best")
    assert judged(base, ranked({"torch": 140.0, "triton": 154.0}, 0.001, **slow))["torch"].verdict == "SLOWER"
    assert judged(base, ranked({"torch": 90.0, "triton": 99.0}, 0.001, **slow))["torch"].verdict == "FASTER"


@pytest.mark.parametrize("name", ["vs_best", "vs_best_low", "vs_best_high"])
def test_without_an_interval_of_vs_best_the_time_decides(name: str) -> None:
    base, new = ranked({"torch": 100.0, "triton": 110.0}), ranked({"torch": 100.0, "triton": 150.0})
    change = judged(base, [new[0], replace(new[1], **{name: None})])["triton"]
    assert (change.verdict, change.evidence) == ("SLOWER", "device_us")


@pytest.mark.parametrize("values", [{"suspect": True}, {"vs_best_low": None}, {"status": "wrong"}, {"vendor": ""}])
def test_a_row_without_a_sound_number_is_no_control(values: dict[str, Any]) -> None:
    base = ranked({"torch": 100.0, "jax": 101.0, "triton": 110.0})
    new = [replace(base[0], **values), *base[1:]]
    assert judged(base, new)["triton"].control == judged(new, base)["triton"].control == "jax"


GPUS = [("", False), ("GPU-1", False), ("GPU-2", True)]


@pytest.mark.parametrize(("gpu", "other"), GPUS, ids=["unknown", "the same", "another"])
def test_a_difference_as_between_gpus_is_no_change_of_the_code(gpu: str, other: bool) -> None:
    one = {**H200, "device": {**H200["device"], "uuid": "GPU-1"}}
    base = as_side(ranked({"torch": 100.0, "triton": 110.0}), one)

    def verdict_and_notes(us: float) -> tuple[str, bool]:
        new = as_side(ranked({"torch": 100.0, "triton": us}, gpu=gpu))
        found = {change.new.implementation: change for change in judge(base, new).changes}
        assert not found["torch"].notes
        return found["triton"].verdict.value, "on another GPU of this model" in found["triton"].notes

    assert verdict_and_notes(110.0) == ("SAME", False)
    assert verdict_and_notes(119.0) == ("AMBIGUOUS" if other else "SLOWER", other)
    assert verdict_and_notes(150.0) == ("SLOWER", other)


def test_the_gpu_of_a_row_is_that_of_its_own_run() -> None:
    """A folder also keeps tables of earlier runs, each with a record; a resumed run may have changed the GPU."""
    last, earlier = ({**H200, "device": {**H200["device"], "uuid": uuid}} for uuid in ("GPU-1", "GPU-2"))
    ours = row()
    records = {
        "last": last,
        "earlier": {**last, "earlier": {"matmul": earlier}},
        "other table": {**last, "earlier": {"sum": earlier}},
        "resumed": {**last, "resumed_utc": ["now"]},
        "damaged": {**last, "earlier": {"matmul": 3}},
    }
    assert {name: as_side([ours], record).gpu_of(ours) for name, record in records.items()} == {
        "last": "GPU-1", "earlier": "GPU-2", "other table": "GPU-1", "resumed": "", "damaged": ""
    }  # fmt: skip
    assert as_side([ours], last).gpu_of(row(gpu="GPU-3")) == "GPU-3"
    assert not as_side([ours], last).gpu_of(row(device="cpu"))


@pytest.mark.parametrize("apart", [{"case": "M=1,N=1,K=1"}, {"dtype": "float16"}, {"device": "cpu"}])
def test_a_control_is_of_the_same_case_and_device(apart: dict[str, str]) -> None:
    base = ranked({"torch": 100.0, "triton": 110.0}, device="cuda:0")
    other = [replace(r, **apart, vendor="") for r in base]
    found = judge(as_side([*base, *other]), as_side([*base, *other]), 0.03)
    assert [change.control for change in found.changes] == ["", "torch", "", ""]
