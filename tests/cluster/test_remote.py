"""`compare --cluster`: a Dask cluster of two processes on this CPU runs the cases, also when its workers are lost."""

from __future__ import annotations

import contextlib
import os
import platform
import re
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from commands import SECONDS_TO_END, command, command_line
from faulty import ROOT, inject

from suite.cluster.dask_settings import FOLDER_VARIABLE
from suite.results.csv_file import read_rows
from suite.results.row import Status

pytest.importorskip("distributed", reason="dask distributed is not installed: pip install '.[cluster]'")

KILLS_DASK = "psutil.Process(os.getppid()).parent().parent().kill(); time.sleep(60)"
"""Run by a worker: above it are the fork server, the process that takes cases, and the Dask worker."""
COUNTED = """import os, pathlib, psutil, time
    case = pathlib.Path({folder!r}, str(len(a)))
    case.mkdir(exist_ok=True)
    (case / str(os.getpid())).touch()
    runs = len(list(case.iterdir()))
    if len(a) == 1003 or len(a) == 1005 and runs == 1: {killer}
    assert os.environ['CUDA_VISIBLE_DEVICES'] == ''
    return a + b"""
"""Notes each process that computes a case. 1003 elements kill the Dask worker each time, 1005 the first time."""


@contextlib.contextmanager
def cluster(folder: Path) -> Iterator[str]:
    """The address of a cluster of two processes, with a certificate in `folder`."""
    start = [sys.executable, "-m", "suite", "cluster", "start", "--local", "2"]
    environment = {**os.environ, FOLDER_VARIABLE: str(folder)}
    with subprocess.Popen(start, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.send_signal(signal.SIGINT)
            assert process.wait(200) in (0, 130)


@pytest.fixture
def certificates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path / "certificates"))
    return tmp_path / "certificates"


def compare(address: str, out: Path, *more: str) -> list[str]:
    return command("vector_add", "--cluster", address, "--no-time", "--inputs", "none", "--out", out, *more)


@pytest.mark.slow(seconds=30)
@pytest.mark.thorough  # test_local.py loses processes too
@pytest.mark.timeout(900)  # workers that are killed start anew, on a busy host slowly
def test_cases_of_lost_workers_run_again_and_others_run_once(
    tmp_path: Path, certificates: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Faults of Dask: queued tasks are blamed (#5234), finished ones run again (#7870), variables are lost (#6749)."""
    runs = tmp_path / "runs"
    runs.mkdir()
    body = COUNTED.format(folder=str(runs), killer=KILLS_DASK)
    monkeypatch.setenv("PYTHONPATH", inject(tmp_path / "faults", {"counted": body}))
    sizes = range(1000, 1010)
    with cluster(certificates) as address:
        chosen = ["--impl", "torch/counted", "--dtype", "fp32", "--shape", f"N={','.join(map(str, sizes))}"]
        done = subprocess.run(
            compare(address, tmp_path / "out", *chosen), cwd=ROOT, capture_output=True, text=True, check=False
        )
        assert done.returncode == 1, done.stderr
        assert _answer_without_certificate(address) == b""
    rows = list(read_rows(tmp_path / "out" / "vector_add.csv"))
    assert sorted(row.case for row in rows) == [f"N={size}" for size in sizes], "none lost, none twice"
    processes = {int(each.name): len(list(each.iterdir())) for each in runs.iterdir()}
    assert processes == {**dict.fromkeys(sizes, 1), 1003: 3, 1005: 2}
    for row in rows:
        assert row.status is (Status.ERROR if row.case == "N=1003" else Status.OK), row.reason
        assert row.status is Status.ERROR or (row.host, row.gpu) == (platform.node(), "")
        if row.status is Status.ERROR:
            how = "its process was lost 3 times, at last on {}: the Dask worker was killed"
            assert row.reason == how.format(platform.node())
            assert row.killed_from_outside


def _answer_without_certificate(address: str) -> bytes:
    """The answer of the scheduler to a client without the cluster's certificate. It greets all others."""
    host, port = address.removeprefix("tls://").split(":")
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with contextlib.suppress(ssl.SSLError, ConnectionError), socket.create_connection((host, int(port))) as plain:
        return context.wrap_socket(plain).recv(1)
    return b""


@pytest.mark.slow(seconds=20)
def test_an_interrupted_run_ends_its_processes_in_the_cluster_and_goes_on_with_resume(
    tmp_path: Path, certificates: Path
) -> None:
    chosen = ["--op", "sigmoid,sum,softmax", "--impl", "torch,numpy", "--resume"]
    with cluster(certificates) as address:
        arguments = compare(address, tmp_path / "out", *chosen)
        with subprocess.Popen(arguments, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as run:
            assert run.stderr is not None
            while (line := run.stderr.readline()) and not (begun := re.search(rb" \d+/(\d+)\]", line)):
                pass
            assert line, "the run ended before its first case"
            assert begun
            begin = time.monotonic()
            run.send_signal(signal.SIGINT)
            said = run.stderr.read().decode()
            assert run.wait(60) == 130
            assert time.monotonic() - begin < SECONDS_TO_END
        assert "Traceback" not in said
        while (left := _device_processes()) and time.monotonic() - begin < SECONDS_TO_END:
            time.sleep(0.1)
        assert not left
        done = subprocess.run(arguments, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert re.search(r"resumed: \d+ rows exist already", done.stderr)
    rows = [row for path in (tmp_path / "out").glob("*.csv") for row in read_rows(path)]
    assert len(rows) == len({row.key for row in rows}) == int(begun[1])
    together = Counter(row.case_key for row in rows)
    assert set(together.values()) == {2}


def _device_processes() -> list[psutil.Process]:
    family = psutil.Process().children(recursive=True)
    return [each for each in family if "suite.cluster.device_main" in " ".join(command_line(each))]
