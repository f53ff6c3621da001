"""docs/measuring_well.md: the numbers of committed tables behind each trap."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from validation.documents import ROOT
from validation.documents.rows import command, row, rows, us, wrapped
from validation.documents.tables import Line, with_sentences, with_tables
from validation.documents.trust import table

PAGE = ROOT / "docs" / "measuring_well.md"
INPUTS = "../nvidia-h100-80gb-hbm3/inputs/matmul"
SQUARE, LARGE, MILLION, SMALL = "M=4096,N=4096,K=4096", "N=268435456", "N=1048576", "N=1024"
DATASHEET = 4.8e12
"""Bytes per second of the memory of an H200."""


def arithmetic(lines: Sequence[Line]) -> None:
    for line in lines:
        found = row("matmul", "jax", SQUARE, "float32", line["precision"].strip("`"))
        line |= {
            "us": f"{found.device_us:,.0f}",
            "largest error, relative to the largest element": f"{found.max_rel:.1e}",
        }


def inputs(lines: Sequence[Line]) -> None:
    for line in lines:
        kind = line["inputs"]
        found = row(INPUTS, "torch", SQUARE if kind == "normal" else f"{SQUARE},inputs={kind}")
        line |= {
            "device us": us(found),
            "TFLOP/s": f"{found.tflops:.0f}",
            "sustained us": f"{found.sustained_us:.1f}",
            "at MHz": f"{found.sustained_clock_mhz:,.0f}",
            "at W": f"{found.sustained_power_w:.0f}",
            "joules": f"{found.joules:.3f}",
            "error / largest element": f"{found.max_rel:.1e}",
        }


def launches(lines: Sequence[Line]) -> None:
    small = {
        each.implementation: each for each in rows("sweep/vector_add") if each.case == SMALL and each.device != "cpu"
    }
    for line in lines:
        found = small[line["implementation"]]
        line |= {"device us": f"{found.device_us:.2f}", "latency us": f"{found.latency_us:.1f}"}


def sentences() -> Iterator[tuple[str, Sequence[str]]]:
    yield r"/inputs\)\): ```\n([^`]*)\n```", [wrapped(command(INPUTS))]
    timer = table("timer")
    (sums,) = (each for each in timer if each["work"] == "sum of 30 MiB, the cache evicted")
    warm = re.findall(r"([\d.]+) us when read again", sums["note"])
    yield (
        r"through torch takes ([\d.]+) us in such a loop, and ([\d.]+) us with the cache",
        [*warm, sums["recorded_us"]],
    )
    asleep = next(each for each in timer if each["work"] == "two kernels, the host asleep for 10 ms between")
    whole = re.findall(r"to last end ([\d,]+) us", asleep["note"])
    busy = f"{float(asleep['recorded_us']):.1f}"
    yield r"this gives ([\d,]+) us instead of the ([\d.]+) us in which", [*whole, busy]
    added = row("vector_add", "torch", LARGE, "float32")
    dispatch, moved = added.dispatch_us or 0.0, 3 * 4 * 2**28
    yield (
        r"through torch returns after ([\d.]+) us; the device is busy for (\d+) us",
        [f"{dispatch:.1f}", f"{added.device_us:.0f}"],
    )
    rate = moved / dispatch * 1e6
    yield r"it would move (\d+) TB/s, (\d+) times the memory's rate", [f"{rate / 1e12:.0f}", f"{rate / DATASHEET:.0f}"]
    first = row("vector_add", "triton", MILLION, "float32")
    yield (
        r"Triton's vector addition took ([\d.]+) s, with its import; a later one keeps the device busy for ([\d.]+) us",
        [f"{first.first_call_s:.2f}", us(first)],
    )
    yield r"calls the first one still adds (\d+) us to each", [f"{(first.first_call_s or 0.0) * 1e6 / 100_000:.0f}"]


def filled(text: str) -> str:
    """Return the page with the numbers of the results."""
    fills = {
        frozenset({"precision", "us"}): arithmetic,
        frozenset({"inputs", "sustained us"}): inputs,
        frozenset({"implementation", "latency us"}): launches,
    }
    return with_sentences(with_tables(text, fills), sentences())
