"""The recorder's cost on a CUPTI in Python."""

from __future__ import annotations

import pytest

from validation import recorder_cost


def test_the_imitation_records_each_launch() -> None:
    library = recorder_cost.Library()
    recorder = recorder_cost.recorder(library)
    for count in (3, 2000):  # the second batch fills more than one buffer
        for _ in range(count):
            recorder.sample("a", library.launch, lambda: (library.launch(), library.launch()))
        assert [(sample.us, sample.before_us) for sample in recorder.collect()] == [(2.0, 1.0)] * count


def test_it_prints_the_parts(capsys: pytest.CaptureFixture[str]) -> None:
    assert recorder_cost.main(["--samples", "20", "--rounds", "3"]) == 0
    taken, delivered, total = (float(word) for word in capsys.readouterr().out.split() if word[0].isdigit())
    assert 0 < taken < total
    assert taken + delivered == pytest.approx(total, abs=0.011)
