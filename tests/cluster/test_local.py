"""`compare --gpus N` on a CPU: processes share the cases, and the rows are those of one process."""

from __future__ import annotations

import itertools
import platform
import re
import signal
import subprocess
import time
from dataclasses import fields, replace
from functools import partial
from pathlib import Path

import psutil
import pytest
from commands import SECONDS_TO_END, call, command, command_line
from faulty import ROOT, inject

from suite import hardware
from suite.cli import compare_run
from suite.cluster import local
from suite.cluster.ledger import Ledger
from suite.cluster.messages import Group
from suite.core.errors import WorkerError
from suite.hardware.device import Device, resolve
from suite.results.csv_file import read_rows
from suite.results.groups import cases
from suite.results.row import Row, Status
from suite.runner.compare import compare as on_one
from suite.runner.observer import Observer, Step
from suite.runner.options import Options
from suite.runner.plan import Job, plan
from suite.runner.selection import Selection

SHARED = ["vector_add", "--device", "cpu", "--no-time", "--gpus", "2"]
ALIKE = {each.name for each in fields(Row)} - {"host", "first_call_s", "judged"}
KILLER = "psutil.Process(os.getppid()).parent().kill(); time.sleep(60)"
"""Run by a worker: its parent is the fork server, and the parent of that is the process that takes cases."""


def alike(rows: list[Row]) -> list[dict[str, object]]:
    return [{name: getattr(row, name) for name in ALIKE} for row in rows]


@pytest.mark.slow(seconds=12)
@pytest.mark.thorough  # the next test has two processes too, and their order
def test_two_processes_give_the_rows_of_one_in_the_order_of_the_plan() -> None:
    options = Options(resolve("cpu"), timed=False, devices=2)
    jobs = plan(Selection(("vector_add", "sigmoid"), ("torch", "numpy")), options.device)
    shared = local.compare(jobs, options)
    assert alike(shared) == alike(on_one(jobs, replace(options, devices=1)))
    assert {(row.host, row.gpu) for row in shared} == {(platform.node(), "")}


def test_ranks_come_after_the_shared_cases_of_gpus_and_are_counted_with_them(monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[Step] = []

    class Watch(Observer):
        def step(self, step: Step) -> None:
            steps.append(step)

    monkeypatch.setattr(local.DeviceProcesses, "run", lambda self, ledger: None)
    monkeypatch.setattr(local.Ledger, "rows", [Row("sum", "", "", "", "numpy")] * 4)
    monkeypatch.setattr(local, "build_ahead", lambda *_: None)
    monkeypatch.setattr(local, "environments", lambda *_: [{}, {}])
    options = Options(Device("cuda", name="GPU"), timed=False, devices=2)
    jobs = plan(Selection(("sum", "all_reduce"), ("torch*",), dtypes=("float32",)), resolve("cpu"))

    def ranked(jobs: list[Job], options: Options, observer: Observer, finished: object) -> list[Row]:
        observer.step(Step(jobs[0].op.name, "", "checking", 1, 3))
        return []

    monkeypatch.setattr(local.one_device, "compare", ranked)
    local.compare(jobs, options, Watch())
    assert [(step.operation, step.done, step.total) for step in steps] == [("all_reduce", 5, 7)]


def test_one_process_of_a_cpu_runs_all_ranks_first_while_others_take_an_operation_each(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    taken: tuple[list[Group], list[Group]] = ([], [])

    def run(self: local.DeviceProcesses, ledger: Ledger) -> None:
        turns = itertools.cycle((0, 1))
        while (task := ledger.take(set(taken[turn := next(turns)]), str(turn))) is not None:
            taken[turn].append(task.group)

    monkeypatch.setattr(local.DeviceProcesses, "run", run)
    monkeypatch.setattr(local, "build_ahead", lambda *_: None)
    options = Options(resolve("cpu"), timed=False, devices=2)
    operations = ("sum", "softmax", "all_reduce", "data_parallel_grad")
    local.compare(plan(Selection(operations, ("torch",), dtypes=("float32", "float16")), options.device), options)
    ranks, others = ([operation for operation, _, _ in groups] for groups in taken)
    assert list(dict.fromkeys(ranks))[:2] == ["all_reduce", "data_parallel_grad"]
    assert list(dict.fromkeys(others))[:2] == ["sum", "softmax"]
    assert others == sorted(others, key=others.index), "an operation's cases follow each other"


@pytest.mark.slow(seconds=15)
@pytest.mark.thorough
def test_ranks_beside_other_cases_give_the_rows_of_one_process() -> None:
    options = Options(resolve("cpu"), timed=False, devices=2)
    jobs = plan(Selection(("all_reduce", "sum"), ("torch",), dtypes=("float32",)), options.device)
    assert alike(local.compare(jobs, options)) == alike(on_one(jobs, replace(options, devices=1)))


@pytest.mark.slow(seconds=15)
@pytest.mark.parametrize(
    "dtypes",
    [("float16", "bfloat16"), pytest.param(("float32", "float16", "bfloat16"), marks=pytest.mark.thorough)],
    ids=["once", "twice at most"],
)
def test_the_case_of_a_process_that_dies_runs_again_twice_at_most(
    dtypes: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process dies in each attempt at float32, and in the first at float16."""
    body = f"import os, pathlib, psutil, time; folder = pathlib.Path({str(tmp_path)!r})\n"
    body += "    deaths = len(list(folder.glob(f'{a.dtype}*')))\n"
    body += "    if a.dtype.itemsize == 4 or 'bfloat' not in str(a.dtype) and not deaths:\n"
    body += f"        (folder / f'{{a.dtype}} {{deaths}}').touch(); {KILLER}\n    return a + b"
    monkeypatch.setenv("PYTHONPATH", inject(tmp_path / "faults", {"kills": body}))
    out = tmp_path / "out"
    done = subprocess.run(
        command(*SHARED, "--inputs", "none", "--dtype", ",".join(dtypes), "--impl", "torch,torch/kills", "--out", out),
        cwd=ROOT, capture_output=True, text=True,
    )  # fmt: skip
    rows = list(read_rows(out / "vector_add.csv"))
    assert done.returncode == ("float32" in dtypes), done.stderr
    deaths = ["torch.float16 0"] + ["torch.float32 0", "torch.float32 1", "torch.float32 2"] * ("float32" in dtypes)
    assert sorted(each.name for each in tmp_path.glob("torch*")) == deaths
    assert len(rows) == len({row.key for row in rows}) == 2 * len(dtypes)
    assert [row.case_key for row in rows[::2]] == [row.case_key for row in rows[1::2]], "a case's lines are together"
    assert {row.dtype for row in rows} == {*dtypes}
    for row in rows:
        assert row.status is (Status.ERROR if row.dtype == "float32" else Status.OK)
        assert row.killed_from_outside is (row.dtype == "float32")
        if row.dtype == "float32":
            assert re.match(rf"its process was lost 3 times, at last on {platform.node()}: the worker was", row.reason)


@pytest.mark.two_gpus
def test_two_gpus_share_the_cases_and_rows_name_theirs() -> None:
    options = Options(resolve("cuda:0"), devices=2)
    jobs = plan(Selection(("vector_add", "softmax"), ("torch", "triton"), inputs=("none",)), options.device)
    rows = local.compare(jobs, options)
    assert {row.gpu for row in rows} == {hardware.uuid(0), hardware.uuid(1)}
    assert {row.device for row in rows} == {"cuda:0"}
    first = {row.implementation: (row.gpus, row.reason) for row in rows if row.case_key == rows[0].case_key}
    assert {gpus for gpus, _ in first.values()} == {2}, f"the first case is timed on both: {first}"
    for rows_of_case in cases(rows):
        assert len({row.gpu for row in rows_of_case}) == 1
        assert all(row.status is Status.OK and row.device_us and row.driver for row in rows_of_case)


@pytest.mark.slow(seconds=10)
@pytest.mark.thorough  # test_remote.py interrupts one too
def test_an_interrupted_run_leaves_no_process_and_goes_on_with_resume(tmp_path: Path) -> None:
    out = tmp_path / "out"
    # Enough cases that the run cannot end before the signal reaches it.
    operations = "sigmoid,sum,softmax,rms_norm,layer_norm,matmul"
    arguments = [*SHARED, operations, "--impl", "torch,numpy", "--out", out, "--resume", "--seed", "3"]
    with subprocess.Popen(command(*arguments), cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as run:
        assert run.stderr is not None
        while (line := run.stderr.readline()) and not (begun := re.search(rb" \d+/(\d+)\]", line)):
            pass
        assert line, "the run ended before its first case"
        assert begun
        family = psutil.Process(run.pid).children(recursive=True)
        assert any("suite.cluster.device_main" in command_line(each) for each in family)
        begin = time.monotonic()
        run.send_signal(signal.SIGINT)
        said = run.stderr.read().decode()
        assert run.wait(SECONDS_TO_END) == 130
        assert time.monotonic() - begin < SECONDS_TO_END
    assert "Traceback" not in said
    assert psutil.wait_procs(family, timeout=SECONDS_TO_END)[1] == []
    done = subprocess.run(command(*arguments), cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert re.search(r"resumed: \d+ rows exist already", done.stderr)
    rows = [row for path in out.glob("*.csv") for row in read_rows(path)]
    assert len(rows) == len({row.key for row in rows}) == int(begun[1])


def test_processes_that_end_before_their_first_message_end_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sitecustomize.py").write_text("raise SystemExit(7)")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    options = Options(resolve("cpu"), timed=False, devices=2)
    jobs = plan(Selection(("vector_add",), ("torch",)), options.device)
    with pytest.raises(WorkerError, match=r"every process that takes cases has ended: the worker ended with"):
        local.compare(jobs, options)


def test_the_cores_of_a_cpu_share_many_operations_that_are_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hardware.host, "cores", lambda: 3)
    options = Options(resolve("cpu"), timed=False)
    many = plan(Selection(("sum", "softmax", "sigmoid", "rope", "cumsum", "vector_add"), ("numpy",)), options.device)
    devices = partial(compare_run._devices, memory=64 << 30)
    assert devices(many, None, options) == 3
    assert devices(many[1:], None, options) == 2
    assert devices(many[3:], None, options) == 1
    assert devices(many, None, replace(options, timed=True)) == 1
    assert devices(many, "2", options) == 2
    assert devices(many, None, options, memory=8 << 30) == 2, "each process has room for the frameworks"
    assert devices(many, None, options, memory=1 << 30) == 1


def test_times_of_processes_that_share_a_cpu_are_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, "compare", "sum", "--device", "cpu", "--gpus", "2") == 2
    assert "would disturb each other's times; add --no-time" in capsys.readouterr().err
