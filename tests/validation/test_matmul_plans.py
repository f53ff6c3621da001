"""The evaluation of the plans of matmul."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from suite.timing.intervals import RecorderError
from suite.timing.recorder import Sample
from validation import matmul_plan_tables, matmul_plans

ROWS = f"""M,N,K,layout,{",".join(matmul_plan_tables.FACTS)},plan,us,samples,error
4096,4096,4096,nn,0,0,132,0,0,0,1,0,torch,180,4,0
4096,4096,4096,nn,0,0,132,0,0,0,1,0,wgmma/1/1,176,4,0
4096,4096,4096,nn,0,0,132,0,0,0,1,0,mma/2/1,300,1,0
20,30,40,nn,0,1,132,0,1,1,1,0,torch,4,4,0
20,30,40,nn,0,1,132,0,1,1,1,0,wgmma/0/1,8,1,0.5
20,30,40,nn,0,1,132,0,1,1,1,0,mma/1/1,2,4,0
"""


class Work:
    """A recorder, and a target, that know whether work on the device belongs to a sample."""

    def __init__(self, fails: set[int]) -> None:
        self.inside, self.fails, self.samples, self.started = False, fails, 0, 0
        self.taken: list[str] = []

    def recorder(self) -> Work:
        return self

    def start(self) -> None:
        self.started += 1

    def stop(self) -> None:
        self.taken = []

    def serialize_kernels(self) -> None: ...

    def evict(self) -> None:
        assert self.inside

    def sample(self, name: str, prepare: Callable[[], None], run: Callable[[], None]) -> None:
        self.inside = True
        prepare()
        run()
        self.inside = False
        self.taken.append(name)
        self.samples += 1

    def collect(self) -> list[Sample]:
        if self.samples in self.fails:
            self.samples += 1
            raise RecorderError("lost")
        taken, self.taken = self.taken, []
        return [Sample(name, 3.0 if name == "torch" else 2.0, None) for name in taken]


@pytest.mark.parametrize("fails", [set(), {3}], ids=["recorder works", "recorder fails once"])
def test_all_work_belongs_to_samples_and_a_lost_shape_does_not_end_the_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str], fails: set[int]
) -> None:
    work = Work(fails)

    def operands(shape: tuple[int, int, int], *_: object) -> tuple[torch.Tensor, torch.Tensor]:
        assert work.inside
        return torch.ones(shape[0], shape[2]), torch.ones(shape[2], shape[1])

    def product(*given: object, **options: object) -> torch.Tensor:
        assert work.inside
        a, b = (x for x in given if isinstance(x, torch.Tensor))
        return a @ b

    monkeypatch.setattr(matmul_plans, "target", lambda _: work)
    monkeypatch.setattr(matmul_plans, "operands", operands)
    monkeypatch.setattr(matmul_plans, "vendor", product)
    monkeypatch.setattr(matmul_plans.auto, "run", product)
    x = matmul_plan_tables.Problem(20, 30, 40, False, True, 132)
    monkeypatch.setattr(matmul_plans._matmul_plan, "problem_of", lambda *_: x)
    shapes = [(20, 30, 40), (21, 30, 40)]
    path = tmp_path / "plans.csv"
    matmul_plans.measure(shapes, path, matmul_plans.Timer(["mma", "wgmma"], "nn"), 60)
    shown = capsys.readouterr().out
    assert {each.vendor_ratio(each.chosen) for each in matmul_plan_tables.read(path)} == {1.5}
    assert ("is left out: lost" in shown) == bool(fails)
    assert work.started == 1 + len(fails)


def test_the_tables_have_the_choice_of_the_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "plans.csv"
    path.write_text(ROWS)
    shown = matmul_plan_tables.table({"two": matmul_plan_tables.read(path)})
    assert "WRONG 20 x 30 x 40 wgmma/0/1: 0.5" in capsys.readouterr().out
    assert "| two: 2 | 1.430 (1.023) | 1.430 (1.023) | 1.000 (1.000) |" in shown
    assert "| others, copied for TMA | 2.000 (1) |" in shown
    assert "| 4096 x 4096 x 4096 | wgmma/1/1 | 1.023 | wgmma/1/1 | 1.023 |" in shown


def test_a_summary_makes_the_same_tables(tmp_path: Path) -> None:
    path, short = tmp_path / "plans.csv", tmp_path / "short.csv"
    slower = "4096,4096,4096,nn,0,0,132,0,0,0,1,0,wgmma/3/4,400,1,0\n"
    path.write_text(ROWS + slower)
    timed = matmul_plan_tables.read(path)
    matmul_plan_tables.summarize(timed, short)
    again = matmul_plan_tables.read(short)
    assert matmul_plan_tables.table({"two": again}) == matmul_plan_tables.table({"two": timed})
    assert again[0].plans == {"wgmma/1/1": 176, "mma/2/1": 300}
    assert [(each.x, each.rates) for each in again] == [(each.x, each.rates) for each in timed]


@pytest.mark.parametrize(("precision", "plan"), [("tf32", "wgmma32/0/1"), ("fast", "wgmma8/0/1")])
def test_a_summary_keeps_the_layout_and_the_precision(tmp_path: Path, precision: str, plan: str) -> None:
    path, short = tmp_path / "plans.csv", tmp_path / "short.csv"
    lines = [f"5,37,4096,tn,{precision},132,{name},{us},8,0" for name, us in (("torch", 9.5), (plan, 10))]
    path.write_text("\n".join(["M,N,K,layout,precision,multiprocessors,plan,us,samples,error", *lines, ""]))
    timed = matmul_plan_tables.read(path)
    matmul_plan_tables.summarize(timed, short)
    assert matmul_plan_tables.read(short) == timed
    assert timed[0].how == ("tn", precision)
    assert timed[0].x.kernel == plan.partition("/")[0]


def test_the_tables_say_what_each_kernel_gains(tmp_path: Path) -> None:
    path = tmp_path / "plans.csv"
    path.write_text(ROWS)
    shown = matmul_plan_tables.table({"two": matmul_plan_tables.read(path)})
    assert "| wgmma | 1 | 1.705, 1.70 |" in shown
    assert "| mma | 1 | 4.000, 4.00 |" in shown


def test_plans_of_other_precisions_are_not_said_to_be_checked(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["matmul_plans.py", "--check", "--precision", "tf32"])
    with pytest.raises(SystemExit, match="2"):
        matmul_plans.main()
    assert "--check covers the plans of 16 bits; got --precision tf32" in capsys.readouterr().err
