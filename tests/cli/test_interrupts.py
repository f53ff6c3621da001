"""Interrupted and killed runs: no process that they started outlives them, and no finished row is lost."""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from commands import PLAIN, SECONDS_TO_END, SMALL, command, command_line
from faulty import ROOT, inject

from suite import frameworks
from suite.core.files import PART
from suite.results.csv_file import read_rows
from suite.results.row import Row


@pytest.mark.parametrize(
    "fatal", [signal.SIGKILL, pytest.param(signal.SIGTERM, marks=pytest.mark.thorough)], ids=["SIGKILL", "SIGTERM"]
)
def test_no_worker_outlives_the_run_nor_does_what_it_started(fatal: signal.Signals, tmp_path: Path) -> None:
    body = "import os, subprocess, time; sleeper = subprocess.Popen(['sleep', '600'])\n"
    body += f"    open({str(tmp_path / 'pids')!r}, 'w').write(f'{{os.getpid()}} {{sleeper.pid}} ')\n    time.sleep(600)"
    environment = {**os.environ, "PYTHONPATH": inject(tmp_path / "faults", {"starts": body})}
    with subprocess.Popen(
        command(*SMALL, "--impl", "torch/starts", "--out", tmp_path / "out"),
        env=environment, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as process:  # fmt: skip
        pids: list[str] = []
        while len(pids) < 2 and process.poll() is None:
            time.sleep(0.05)
            with contextlib.suppress(FileNotFoundError):
                pids = (tmp_path / "pids").read_text(encoding="ascii").split()
        family = [psutil.Process(int(pid)) for pid in pids]
        assert len(family) == 2
        process.send_signal(fatal)
        assert process.wait(SECONDS_TO_END + 1) == {signal.SIGKILL: -9, signal.SIGTERM: 128 + 15}[fatal]
    assert psutil.wait_procs(family, timeout=SECONDS_TO_END)[1] == []


def catches_signals(process: subprocess.Popen[bytes]) -> bool:
    """True once the command handles SIGTERM, which Python alone does not."""
    with contextlib.suppress(OSError):
        status = Path(f"/proc/{process.pid}/status").read_text(encoding="ascii")
        caught = re.search(r"^SigCgt:\s*([0-9a-f]+)", status, re.MULTILINE)
        return caught is not None and bool(int(caught[1], 16) >> (signal.SIGTERM - 1) & 1)
    return False


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the code: the original may be edited while the tests run, and `--resume` refuses other code."""
    copy = tmp_path_factory.mktemp("tree")
    for folder in ("suite", *(frameworks.get(name).folder for name in frameworks.names())):
        shutil.copytree(ROOT / folder, copy / folder, ignore=shutil.ignore_patterns("__pycache__"))
    return copy


def interrupted(tree: Path, out: Path, delay: Callable[[], float], after: int | None) -> tuple[int, str, float]:
    """A run that gets a SIGINT, `delay()` seconds after its start, or after it has begun its row number `after`.

    Returns its exit status, its stderr, and the seconds that its end took.
    """
    environment = {**os.environ, "PATH": "/nonexistent", "OMP_NUM_THREADS": "1"}  # no nvcc, g++ or git to ask
    with subprocess.Popen(
        command(*PLAIN, "--out", out, "--resume"),
        cwd=tree, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True,
    ) as process:  # fmt: skip
        assert process.stderr is not None
        said = b""
        while not catches_signals(process) and process.poll() is None:
            time.sleep(0.002)
        while after is not None and (line := process.stderr.readline()):
            said += line
            begun = re.search(rb"\] .*: checking", line)
            if begun and (after := after - 1) < 0:
                break
        time.sleep(delay())
        begin = time.monotonic()
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGINT)
        said += process.stderr.read()
        status = process.wait(SECONDS_TO_END)
        return status, said.decode(), time.monotonic() - begin


def measured(table: Path) -> dict[object, Row]:
    """The rows by key, without the column that follows from all rows of a case, which a resumed run fills in."""
    return {row.key: replace(row, error_vs_vendor=None) for row in read_rows(table)}


@pytest.mark.slow(seconds=15)
@pytest.mark.parametrize(("seed", "times"), [(1, 1), pytest.param(2, 6, marks=pytest.mark.thorough)])
def test_a_run_interrupted_at_random_moments_loses_nothing(seed: int, times: int, tree: Path, tmp_path: Path) -> None:
    """A run is interrupted several times. Then it is resumed, and finished rows are not repeated.

    Half of the moments lie anywhere after the start, half where rows are being written.
    """
    randomly = random.Random(seed)
    out = tmp_path / "out"
    table = out / "vector_add.csv"
    attempts, before = 0, {}
    while attempts < times:
        attempts += 1
        after = None if attempts % 2 else randomly.randrange(3)
        status, said, seconds = interrupted(
            tree, out, lambda late=0.03 if after is not None else 1.5: randomly.uniform(0.0, late), after
        )
        assert status in (0, 130, -signal.SIGINT), said
        assert "Traceback" not in said, said
        assert seconds < SECONDS_TO_END
        rows = measured(table) if table.exists() else {}
        assert {key: rows.get(key) for key in before} == before, "finished rows are still there and not repeated"
        if out.exists():
            begun = re.findall(r", (\d+)/6\] ", said)
            assert len(rows) >= max([*map(int, begun), 0]), "every row that was finished is on the disk"
            assert not [path for path in out.iterdir() if path.name.endswith(PART)]
            record = out / "environment.json"
            if rows or record.exists():
                state = json.loads(record.read_text(encoding="utf-8"))["run"]
                assert len(rows) == 6 if state["complete"] else status != 0
        before = rows
        if len(rows) == 6:  # start over: the next attempts need something to interrupt
            shutil.rmtree(out)
            before = {}
    environment = {**os.environ, "PATH": "/nonexistent"}
    done = subprocess.run(
        command(*PLAIN, "--out", out, "--resume"),
        cwd=tree,
        env=environment,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    rows = measured(table)
    assert len(rows) == 6
    assert {key: rows[key] for key in before} == before
    assert f"resumed: {len(before)} rows exist already" in done.stderr or not before
    assert {path.name for path in out.iterdir()} == {"vector_add.csv", "vector_add.md", "environment.json"}
    assert not [p for p in psutil.process_iter() if str(out) in " ".join(command_line(p))]
