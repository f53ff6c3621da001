"""The figures of the course: their content, and that the committed files have the texts of today's program."""

from __future__ import annotations

from pathlib import Path

import pytest

from validation import course_figures
from validation.figures import memory, ring

DEVICE = {
    "name": "a GPU",
    "memory_bytes": 80 * 2**30,
    "attributes": {
        "sm_count": 100,
        "clock_khz": 1_000_000,
        "memory_clock_khz": 1_000_000,
        "memory_bus_bits": 4096,
        "l2_bytes": 50 * 2**20,
        "shared_per_sm": 228 * 2**10,
        "registers_per_sm": 65536,
    },
}


@pytest.mark.parametrize("name", course_figures.FIGURES)
def test_the_committed_figure_has_the_texts_of_a_new_one(name: str) -> None:
    committed = (course_figures.IMAGES / f"{name}.svg").read_text(encoding="utf-8")
    assert course_figures.texts(committed)
    assert course_figures.texts(committed) == course_figures.texts(course_figures.svg(course_figures.FIGURES[name]()))


def test_a_ring_ends_with_all_sums_on_all_devices_and_each_step_sends_one_part() -> None:
    begin, *steps = ring.states()
    assert len(steps) == 2 * (ring.DEVICES - 1)
    everyone = set(range(ring.DEVICES))
    assert all(part == everyone for device in steps[-1] for part in device)
    for before, after in zip([begin, *steps], steps, strict=False):
        changed = [sum(a != b for a, b in zip(*pair, strict=True)) for pair in zip(before, after, strict=True)]
        assert changed == [1] * ring.DEVICES


def test_the_memories_have_the_sizes_and_rates_of_the_device() -> None:
    registers, shared, cache, device = memory.levels(DEVICE, None)
    assert (registers.size, shared.size) == ("256 KiB an SM, 25 MiB in all", "228 KiB an SM, 22 MiB in all")
    assert shared.rate.startswith("13 TB/s")  # 100 SMs x 128 bytes x 10^9 cycles
    assert cache.size == "50 MiB"
    assert (device.size, device.rate) == ("80 GiB", "1 TB/s, in theory")
    assert memory.levels(DEVICE, 950.0)[-1].rate == "0.95 TB/s, measured"


def test_the_roofline_has_the_rungs_of_the_committed_results() -> None:
    names = [point.name for point in course_figures.points()]
    assert {"cuda", "cuda/tiled", "cuda/wgmma", "vector_add"} <= set(names)
    assert all(Path(course_figures.RESULTS / f"{each[0]}.csv").is_file() for each in course_figures.SHOWN)
