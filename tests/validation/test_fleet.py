"""The time of a run on all GPUs beside that on one: the drawn cases, the three runs, and the verdict."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from suite.cli.shape_files import shapes_from
from suite.hardware.device import resolve
from suite.runner.plan import plan
from suite.runner.selection import Selection
from tests.diff.rows import folder, ranked, row
from validation import fleet


def test_the_plan_of_a_run_has_the_drawn_cases_and_no_others(tmp_path: Path) -> None:
    cases = fleet.draw(20, 1)
    assert len({case.operation for case in cases}) == 20
    (tmp_path / "cases.json").write_text(fleet.workload(cases).text())
    _, found = shapes_from(tmp_path / "cases.json")
    assert found is not None
    names = tuple(case.operation for case in cases)
    jobs = plan(Selection(names, dtypes=(fleet.DTYPE,), workloads=(found,), inputs=("none",)), resolve("cpu"))
    assert {case for job in jobs for case in job.cases} == set(cases)


def test_a_draw_depends_on_the_seed_alone() -> None:
    assert fleet.draw(10, 1) == fleet.draw(10, 1) != fleet.draw(10, 2)


FIRST_ROW_S, REPORT_S = 2.0, 3.0


class Played:
    """A run that takes `cases_s` from its first row to its last case, by a clock that only `sleep` moves.

    Then it has the tables of `source`.
    """

    now = 0.0

    def __init__(self, command: tuple[float, Path, Path], *, stdout: Any, **_: object) -> None:
        self.cases_s, self.source, self.folder = command
        self.begin, self.lines, self.returncode = Played.now, Path(stdout.name), 0

    @staticmethod
    def sleep(seconds: float) -> None:
        Played.now += seconds

    def poll(self) -> int | None:
        passed, first = Played.now - self.begin, self.folder / "started.csv"
        if passed >= FIRST_ROW_S and not self.folder.exists():
            self.folder.mkdir()
            first.touch()
        if passed >= FIRST_ROW_S + self.cases_s:
            self.lines.write_text(f"[{passed:.1f} s, 3/3] the last case\n")
        if passed < FIRST_ROW_S + self.cases_s + REPORT_S:
            return None
        first.unlink()
        shutil.copytree(self.source, self.folder, dirs_exist_ok=True)
        return 0


def with_runs(monkeypatch: pytest.MonkeyPatch, sources: dict[str, Path], cases_s: dict[str, float]) -> None:
    """Replaces each run by one that is played."""

    def commands(cases: object, shapes: Path, out: Path, extra: object) -> dict[str, tuple[float, Path, Path]]:
        return {name: (cases_s[name], source, out / name) for name, source in sources.items()}

    monkeypatch.setattr(fleet, "commands", commands)
    monkeypatch.setattr(fleet, "time", SimpleNamespace(monotonic=lambda: Played.now, sleep=Played.sleep))
    monkeypatch.setattr(fleet, "subprocess", SimpleNamespace(Popen=Played, STDOUT=subprocess.STDOUT))


@pytest.mark.parametrize(
    ("us", "cases_s", "status"), [(100.5, 5.0, 0), (150.0, 5.0, 1), (100.5, 6.0, 1)], ids=["ok", "differs", "slow"]
)
def test_the_verdict_needs_the_share_and_the_same_rows(
    us: float, cases_s: float, status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At most 0.55 of the time of one GPU, here 10 s."""
    one, every = (
        folder(tmp_path / name, [row(us=value), *ranked({"torch": 10.0}, 0.001)])
        for name, value in (("of one", 100.0), ("of all", us))
    )
    with_runs(monkeypatch, {"first": every, "all": every, "one": one}, {"first": 0.0, "all": cases_s, "one": 10.0})
    assert fleet.main(["--out", str(tmp_path / "fleet")]) == status


def test_the_share_of_the_cases_is_from_the_first_row_to_the_last_case() -> None:
    every, one = fleet.Run(86.6, 13.5, 79.5, True), fleet.Run(140.0, 8.5, 128.5, True)
    assert fleet.share(every, one, of_cases=True) == pytest.approx(66.0 / 120.0)
    assert fleet.share(every, one) == pytest.approx(86.6 / 140.0)
    assert fleet.LAST_CASE.search("building\n[1.5 s, 12/13] sum\n[12.3 s, 13/13] sum: 2 ok\n")
    assert not fleet.LAST_CASE.search("[1.5 s, 12/13] sum\n[1.6 s, 1/13] sum\n")


def test_a_row_of_one_run_alone_is_named(tmp_path: Path) -> None:
    one = folder(tmp_path / "one", [row(us=100.0), *ranked({"torch": 10.0}, 0.001)])
    every = folder(tmp_path / "all", [row(us=100.0)])
    agree, lines = fleet.agreement(one, every)
    assert not agree
    assert any(line.startswith("in one run alone: ") and "torch" in line for line in lines)


def test_a_run_beyond_its_time_is_cut(tmp_path: Path) -> None:
    found = fleet.run([sys.executable, "-c", "import time; time.sleep(60)"], tmp_path / "none", 0.3)
    assert not found.complete
    assert found.seconds < 20
