"""The rungs of docs/ladder.md have times; the sizes in prose and the pinned packages are those of the results."""

from __future__ import annotations

import json
import re

import pytest

from suite.core.paths import ROOT
from suite.results.csv_file import read_rows
from suite.results.render import crossovers
from validation.documents import ladder
from validation.documents.tables import TABLE

RESULTS = ROOT / "results" / "nvidia-h200"
TEXT = (ROOT / "docs" / "ladder.md").read_text(encoding="utf-8")


def test_every_line_of_a_filled_table_has_a_time() -> None:
    """So that a renamed implementation does not empty a line unseen. `?` marks a line that is still to be measured."""
    lines = [line for block in TABLE.findall(TEXT) for line in block.splitlines() if "../cuda_ref/mat" in line]
    assert len(lines) > 6
    for line in lines:
        assert re.search(r"\| (?:[\d,.]+|\?) \|", line), line


def test_a_gain_is_the_ratio_of_two_rungs() -> None:
    slow, fast = (ladder.attention("attention", name, False) for name in ("cuda/tma_wgmma", "cuda/wgmma"))
    assert slow is not None
    assert fast is not None
    assert float(ladder.gain(fast, slow) or "nan") == pytest.approx(slow.device_us / fast.device_us, rel=0.03)
    assert ladder.gain(fast, None) == ""


def test_the_size_from_which_the_gpu_wins() -> None:
    text = " ".join((ROOT / "docs" / "running.md").read_text(encoding="utf-8").split())
    (found,) = crossovers(read_rows(RESULTS / "sweep" / "vector_add.csv"))
    there, *copied = found.split(";")
    (size,) = re.findall(r"from N=(\d+) on", there)
    assert re.search(rf"the GPU wins from 2\^{int(size).bit_length() - 1} elements on", text)
    assert copied
    assert all("at none of these sizes" in each for each in copied)
    assert "It wins at no size if the data must be copied to the device and back" in text


def test_the_gpu_default_is_what_was_measured() -> None:
    pins = {}
    for line in (ROOT / "constraints-gpu.txt").read_text(encoding="utf-8").splitlines():
        pin, _, marker = line.partition(";")
        if not line.startswith("#") and "<" not in marker:
            name, _, version = pin.strip().partition("==")
            pins[name] = version
    packages = json.loads((RESULTS / "environment.json").read_text(encoding="utf-8"))["packages"]
    assert {name: pins.get(name) for name in packages} == packages
    assert (ROOT / "triton_kernels" / "tuned" / "nvidia-h200" / f"triton-{pins['triton']}.json").is_file()
