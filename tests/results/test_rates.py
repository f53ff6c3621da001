"""Rates and the distance to the limit, from the operation's own bytes and flops."""

from __future__ import annotations

from dataclasses import replace

import pytest

from suite import hardware, ops
from suite.results.rates import passes_ceiling, rates
from suite.results.row import Row

ADD = ops.get("vector_add")
CASE = ADD.case((2**28,), "float32")
BYTES, FLOPS = 3 * 2**28 * 4, 2**28
H200 = "NVIDIA H200"


def row(**values: object) -> Row:
    return Row("vector_add", CASE.label, "float32", "ieee", "torch", cache="cold", **values)  # type: ignore[arg-type]


def test_rates_come_from_time_energy_bytes_and_flops() -> None:
    before = row(device_us=730.0, joules=0.5)
    found = rates(before, ADD, CASE, H200)
    assert found["gb_per_s"] == pytest.approx(BYTES / 730e-6 / 1e9)
    assert found["tflops"] == pytest.approx(FLOPS / 730e-6 / 1e12)
    assert found["gflop_per_joule"] == pytest.approx(FLOPS / 0.5 / 1e9)
    assert found["of_limit"] == pytest.approx(BYTES / 4.8e12 / 730e-6)
    assert found["limit"] == "memory (datasheet)"
    assert not found["suspect"]
    assert before == row(device_us=730.0, joules=0.5), "the row itself is not changed"


def test_a_row_without_a_time_has_no_rates() -> None:
    found = row()
    found.fill(rates(found, ADD, CASE, H200))
    assert found == row()


def test_a_time_below_the_cited_limit_is_suspect_and_says_so_once() -> None:
    found = row(device_us=600.0, remarks="2 other processes on the device")
    for _ in range(2):
        found.fill(rates(found, ADD, CASE, H200))
    assert found.suspect
    assert found.remarks == (
        "suspect: faster than the device's memory (datasheet) allows; the timer is wrong: doctor --timer; "
        "2 other processes on the device"
    )


def test_a_row_that_is_timed_again_is_no_longer_suspect() -> None:
    found = row(device_us=730.0, suspect=True)
    found.fill(rates(found, ADD, CASE, H200))
    assert not found.suspect


def test_with_a_warm_cache_memory_is_no_limit() -> None:
    found = rates(replace(row(device_us=600.0), cache="warm"), ADD, CASE, H200)
    assert "of_limit" not in found
    assert not found["suspect"]
    assert rates(replace(row(device_us=730.0), cache="warm"), ADD, CASE, H200)["of_limit"] < 1


def test_a_measured_ceiling_stands_in_for_a_cited_one() -> None:
    measured = hardware.Peaks("a card", "a card", 3000.0, {"fp32": 50.0}, "limits.json")
    found = rates(row(device_us=1200.0), ADD, CASE, "a card", ceilings=measured)
    assert found["limit"] == "memory (measured)"
    assert found["of_limit"] == pytest.approx(BYTES / 3e12 / 1200e-6)
    assert not found["suspect"]
    assert "limit" not in rates(row(device_us=600.0), ADD, CASE, "a card")


@pytest.mark.parametrize(("high", "passed"), [(1050.0, True), (1080.0, False), (None, True)])
def test_a_row_that_passes_a_measured_ceiling_is_not_suspect_and_has_no_distance_to_it(
    high: float | None, passed: bool
) -> None:
    """The ceiling is too low. A row that is faster than the datasheet allows is suspect: its time is wrong."""
    measured = hardware.Peaks("a CPU", "a CPU", 3000.0, {"fp32": 50.0}, "limits.json")
    found = row(device_us=1000.0, device_us_low=950.0, device_us_high=high)
    assert passes_ceiling(found, ADD, CASE, "a CPU", ceilings=measured) == passed
    assert not passes_ceiling(found, ADD, CASE, "a CPU", ceilings=None)
    found.fill(rates(found, ADD, CASE, "a CPU", ceilings=measured))
    assert found.of_limit == (None if passed else pytest.approx(1.0737, abs=1e-3))
    assert not found.suspect
    remark = "faster than the device's memory (measured), which is not used: doctor --measure again"
    assert found.remarks == (remark if passed else "")
    assert not passes_ceiling(replace(found, device_us=1.0), ADD, CASE, H200, ceilings=measured), "cited"


def test_products_of_several_parts_are_limited_by_a_part_of_the_rate() -> None:
    operation = ops.get("matmul")
    case = operation.case((4096, 4096, 4096), "float32", "ieee")
    found = rates(row(device_us=2000.0), operation, case, H200, arithmetic="6 x bfloat16")
    assert found["limit"] == "arithmetic (datasheet)"
    assert found["of_limit"] == pytest.approx(6 * 2 * 4096**3 / 989e12 / 2000e-6)


def test_a_whole_program_is_transfers_and_call() -> None:
    copies = {"to_device_us": 100.0, "to_host_us": 50.0, "to_device_pinned_us": 40.0}
    found = row(latency_us=805.0, **copies)
    found.fill(rates(found, ADD, CASE, H200))
    assert (found.program_us, found.program_pinned_us) == (955.0, None)


def test_a_lower_clock_lowers_the_limit_of_arithmetic_and_not_that_of_memory() -> None:
    matmul = ops.get("matmul")
    case = matmul.case((4096, 4096, 4096), "bfloat16")
    timed = Row("matmul", case.label, "bfloat16", "ieee", "torch", cache="cold", device_us=180.0, clock_sm_mhz=1830.0)
    loaded = replace(timed, sustained_us=220.0, sustained_clock_mhz=1300.0)
    found = rates(loaded, matmul, case, H200)
    assert found["of_limit_at_clock"] == pytest.approx(found["of_limit"], rel=2e-3), "the datasheet's rate is at 1830"
    assert found["sustained_of_limit"] == pytest.approx(found["of_limit"] * 180 / 220)
    assert found["sustained_of_limit_at_clock"] == pytest.approx(found["sustained_of_limit"] * 1830 / 1300, rel=2e-3)
    added = rates(row(device_us=730.0, clock_sm_mhz=900.0), ADD, CASE, H200)
    assert added["of_limit_at_clock"] == added["of_limit"]


def test_without_a_datasheet_or_a_clock_there_is_no_limit_at_a_clock() -> None:
    known = {"of_limit_at_clock", "sustained_of_limit_at_clock"}
    assert not known & rates(row(device_us=730.0, sustained_us=730.0), ADD, CASE, H200).keys()
    loaded = row(device_us=1e6, sustained_us=1e6, clock_sm_mhz=900.0, sustained_clock_mhz=900.0)
    assert not known & rates(loaded, ADD, CASE, "a card of tomorrow").keys()
