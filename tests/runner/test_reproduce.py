"""`reproduce` draws rows of a table by a seed, runs them again and says how many are within their intervals."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from diff.rows import run as suite

from suite import ops
from suite.core.errors import UsageError
from suite.core.paths import ROOT
from suite.diff.load import load
from suite.hardware.device import Device
from suite.results.row import Row
from suite.runner import reproduce
from suite.runner.options import Options
from suite.runner.plan import Job

PUBLISHED = ROOT / "results" / "nvidia-h200"
H200 = Device("cuda", name="NVIDIA H200")


def test_the_same_seed_draws_the_same_rows() -> None:
    side = reproduce.published(PUBLISHED)
    one, same, other = (reproduce.drawn(side, 20, seed, H200) for seed in (1, 1, 2))
    assert one == same != other
    assert len({row.key for row in one}) == 20
    assert len(reproduce.drawn(side, 10**6, 0, H200)) > 100
    with pytest.raises(UsageError, match="another kind of device"):
        reproduce.drawn(side, 20, 0, Device("cpu", name="CPU"))


def test_every_published_row_names_a_case_of_this_tree() -> None:
    rows = reproduce.published(PUBLISHED).rows.values()
    for row in rows:
        case = reproduce.case_of(row)
        assert (case.operation, case.label, case.dtype, case.precision) == row.case_key
    with pytest.raises(UsageError, match="no such case"):
        reproduce.case_of(replace(next(iter(rows)), case=next(iter(rows)).case + ",unknown=1"))


def test_rows_are_run_beside_the_best_vendor_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    side = reproduce.published(PUBLISHED)
    rows = reproduce.drawn(side, 6, 3, H200)
    asked: list[Job] = []

    def compare(jobs: list[Job], options: Options) -> list[Row]:
        asked.extend(jobs)
        (job,) = jobs
        names = [each.name for each in job.implementations]
        then = [row for row in side.rows.values() if row.case_key[:2] == (job.op.name, job.cases[0].label)]
        then = [row for row in then if row.case_key[2:] == (job.cases[0].dtype, job.cases[0].precision)]
        slower = [replace(row, device_us=(row.device_us or 0.0) * 1.5) for row in then if row.implementation in names]
        return [slower[0], *(row for row in then if row.implementation in names[1:])] if len(asked) == 1 else then

    monkeypatch.setattr(reproduce, "compare", compare)
    found = reproduce.run(rows, side, H200, lambda text: None)
    assert len(found) == 6
    assert all(job.op is ops.get(job.op.name) for job in asked)
    assert any(each.vendor for job in asked for each in job.implementations)
    assert sum(each.within for each in found) == 5
    first = reproduce.summary(found, side, Device("cpu", name="CPU"))
    assert first[0] == "5 of 6 rows within their 95% intervals"
    assert "different device: NVIDIA H200 there, CPU here" in first
    assert any(line.startswith("changed: ") for line in first)


@pytest.mark.slow(seconds=40)
def test_rows_of_a_cpu_are_reproduced_on_a_cpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    small = ["--op", "vector_add", "--shape", "N=100000", "--dtype", "float32", "--impl", "torch", "--impl", "numpy"]
    suite(
        monkeypatch,
        "compare",
        *small,
        "--inputs",
        "none",
        "--device",
        "cpu",
        "--sustained",
        "none",
        "--out",
        tmp_path,
        "--quiet",
    )
    assert len(load(tmp_path).rows) == 2
    capsys.readouterr()
    assert suite(monkeypatch, "reproduce", tmp_path, "--device", "cpu", "--rows", "1", "--seed", "4") == 0
    row, count, *_, moved = capsys.readouterr().out.splitlines()
    assert row.startswith("vector_add N=100000 float32 ieee ")
    assert count.endswith("of 1 rows within their 95% intervals")
    assert moved.startswith("changed: ")
