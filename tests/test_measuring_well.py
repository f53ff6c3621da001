"""The numbers of docs/measuring_well.md that are of an H200 are those of the committed results."""

from __future__ import annotations

import csv

from suite.core.paths import ROOT
from suite.results.csv_file import read_rows
from suite.results.row import Row

RESULTS = ROOT / "results" / "nvidia-h200"
TEXT = " ".join((ROOT / "docs" / "measuring_well.md").read_text(encoding="utf-8").split())


def row(table: str, case: str, implementation: str, precision: str = "ieee") -> Row:
    """A row of a GPU, in float32."""
    (found,) = (
        each
        for each in read_rows(RESULTS / f"{table}.csv")
        if (each.case, each.implementation, each.dtype, each.precision) == (case, implementation, "float32", precision)
        and each.device != "cpu"
    )
    return found


def test_warm_cache_and_gaps() -> None:
    with (RESULTS / "proof" / "timer.csv").open(newline="", encoding="utf-8") as file:
        works = {(each["framework"], each["work"]): each for each in csv.DictReader(file)}
    cached = works["torch", "sum of 30 MiB, the cache evicted"]
    warm = cached["note"].split(" us")[0]
    assert f"takes {warm} us in such a loop, and {cached['recorded_us']} us with the cache evicted" in TEXT
    gap = works["cuda", "two kernels, the host asleep for 10 ms between"]
    span = gap["note"].removeprefix("from first start to last end ")
    assert f"{span} instead of the {float(gap['recorded_us']):.1f} us" in TEXT


def test_arithmetic() -> None:
    for precision in ("ieee", "tf32"):
        found = row("matmul", "M=4096,N=4096,K=4096", "jax", precision)
        assert f"| `{precision}` | {found.device_us:,.0f} | {found.max_rel:.1e} |" in TEXT


def test_launch_cost() -> None:
    for name in ("torch", "cuda", "triton", "jax"):
        found = row("sweep/vector_add", "N=1024", name)
        assert f"| {name} | {found.device_us:.2f} | {found.latency_us:.1f} |" in TEXT


def test_no_waiting() -> None:
    found = row("vector_add", "N=268435456", "torch")
    assert found.dispatch_us is not None
    assert f"returns after {found.dispatch_us:.1f} us; the device is busy for {found.device_us:.0f} us" in TEXT
    claimed = 3 * 4 * 2**28 / found.dispatch_us / 1e6
    assert f"{claimed:.0f} TB/s, {claimed / 4.8:.0f} times" in TEXT


def test_first_call() -> None:
    found = row("vector_add", "N=1048576", "triton")
    assert f"took {found.first_call_s:.2f} s, with its import; a later one" in TEXT
    assert f"busy for {found.device_us:.1f} us" in TEXT


def test_inputs_move_the_speed() -> None:
    rows = read_rows(ROOT / "results" / "nvidia-h100-80gb-hbm3" / "inputs" / "matmul.csv")
    assert len(rows) == 6
    for each in rows:
        cells = [
            each.case.partition("inputs=")[2] or "normal",
            f"{each.device_us:.1f}",
            f"{each.tflops:.0f}",
            f"{each.sustained_us:.1f}",
            f"{each.sustained_clock_mhz:,.0f}",
            f"{each.sustained_power_w:.0f}",
            f"{each.joules:.3f}",
            f"{each.max_rel:.1e}",
        ]
        assert f"| {' | '.join(cells)} |" in TEXT
