"""A fault of a kernel, a worker or a compiler costs its own row and no other. Every fault is injected for real."""

from __future__ import annotations

import os
import re
import shutil
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from faulty import CRASHES, MEMORY_BYTES, OUT_OF_MEMORY, TIMED, inject, named
from tries import passes_once

from suite import ops
from suite.cli.console import print_lines
from suite.hardware.device import Device
from suite.results import render as report
from suite.results.csv_file import read_rows
from suite.results.row import Row
from suite.results.store import Results
from suite.runner.compare import compare
from suite.runner.options import Options
from suite.runner.plan import Job

CPU = Device("cpu", name="CPU")


def vector_add(*names: str) -> Job:
    op = ops.get("vector_add")
    return Job(op, (op.case((64,)),), named(*names))


def rows_of(job: Job, **options: object) -> dict[str, Row]:
    return {row.implementation: row for row in compare([job], Options(CPU, **options))}  # type: ignore[arg-type]


WAITS = """import os, pathlib, time
    folder = pathlib.Path(__file__).parent
    (folder / 'begun').write_text(str(os.getpid()))
    (folder / 'begun').rename(folder / 'pid')
    time.sleep(600)"""


@pytest.fixture(scope="module")
def faults(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of the faulty implementations. The tests share it, and with it the process that forks workers."""
    folder = tmp_path_factory.mktemp("faults")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", inject(folder, {**CRASHES, **TIMED, "waits": WAITS}))
        yield folder


EACH = {
    "segfault": ("error", r"SIGSEGV at fault_segfault\.py:2"),
    "kills_itself": ("error", "SIGKILL"),
    "raises": ("error", r"RuntimeError: no luck today \(fault_raises\.py:2\)"),
    "loops_in_c": ("timeout", r"first call .* did not end within {:g} s and was stopped.* at fault_loops_in_c\.py:2"),
    "allocates": ("error", OUT_OF_MEMORY),
    "wrong": ("wrong", "value: "),
    "dies_later": ("error", r"while timed: .*SIGSEGV at fault_dies_later\.py:5"),
    "lazy_later": ("wrong", r"wrong while timed: a result changed after its call"),
    "hangs_later": ("timeout", r"while timed: a timed call, after earlier calls had ended, did not end within {:g} s"),
}


@pytest.mark.slow(seconds=12)
def test_each_fault_costs_its_own_row_and_no_other(faults: Path) -> None:
    """Right implementations before, between and after faulty ones are checked, timed and ranked as without them."""
    broken = [f"torch/{name}" for name in EACH]
    job = vector_add("torch", *broken[:4], "torch/right", *broken[4:], "numpy")

    def each_costs_its_own(limit_s: float) -> None:
        rows = rows_of(job, timeout_s=limit_s, memory_bytes=MEMORY_BYTES)
        for name, (status, reason) in EACH.items():
            row = rows[f"torch/{name}"]
            assert row.status == status, row.reason
            assert re.search(reason.format(limit_s), row.reason), row.reason
        for name in ("torch", "torch/right", "numpy"):
            assert (rows[name].status, rows[name].reason) == ("ok", "")
            assert rows[name].device_us
            assert rows[name].vs_best, "ranked against the vendor line of the same measurement"

    passes_once(each_costs_its_own, (2.0, 20.0))


def test_a_worker_killed_from_outside_is_one_row(faults: Path) -> None:
    def kill() -> None:
        while not (faults / "pid").exists():
            time.sleep(0.05)
        os.kill(int((faults / "pid").read_text(encoding="ascii")), signal.SIGKILL)

    killer = threading.Thread(target=kill, daemon=True)
    killer.start()
    rows = rows_of(vector_add("torch", "torch/waits", "numpy"), timed=False)
    assert rows["torch/waits"].status == "error"
    assert rows["torch/waits"].reason.startswith("the worker was killed by SIGKILL (from outside")
    assert rows["torch"].status == rows["numpy"].status == "ok"


@pytest.mark.skipif(shutil.which(os.environ.get("CXX", "c++")) is None, reason="needs a C++ compiler")
@pytest.mark.parametrize(
    ("script", "status", "reason"),
    [
        pytest.param(
            *("echo 'kernel.cu:7: error: no such thing' >&2; exit 1", "error"),
            "C\\+\\+ compiler failed.*no such thing",
            id="fails",
        ),
        pytest.param(
            *("kill -9 $$", "error", "BuildError: .*vector_add.cu: the C\\+\\+ compiler failed"),
            id="is killed",
            marks=pytest.mark.thorough,
        ),
        pytest.param(
            *(None, "unavailable", "no C\\+\\+ compiler .*apt install g\\+\\+"),
            id="is missing",
            marks=pytest.mark.thorough,
        ),
    ],
)
def test_a_compiler_that_fails_is_one_row(
    script: str | None, status: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler = tmp_path / "broken-c++"
    if script is not None:
        compiler.write_text(f'#!/bin/sh\ncase "$*" in *--version*) echo broken 1.0; exit 0;; esac\n{script}\n')
        compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    rows = rows_of(vector_add("torch", "cuda", "numpy"), timed=False)
    assert rows["cuda"].status == status
    assert re.search(reason, rows["cuda"].reason), rows["cuda"].reason
    assert rows["torch"].status == rows["numpy"].status == "ok"


def test_the_text_of_an_error_cannot_leave_its_cell(faults: Path, tmp_path: Path) -> None:
    """The text has control characters, terminal markup, Markdown, HTML, line ends, and a lone surrogate."""
    from rich.console import Console

    rows = list(rows_of(vector_add("torch/speaks", "torch"), timed=False).values())
    with Results(tmp_path, {}) as results:
        results.put("vector_add", rows)
    assert read_rows(tmp_path / "vector_add.csv") == rows
    assert len((tmp_path / "vector_add.csv").read_text(encoding="utf-8").splitlines()) == 3
    assert rows[0].reason.isprintable()
    assert "[bold red]|<script>`*x*`" in rows[0].reason
    table = (tmp_path / "vector_add.md").read_text(encoding="utf-8")
    assert "\\[bold red\\]\\|&lt;script&gt;\\`\\*x\\*\\`" in table
    console = Console(width=300, force_terminal=True)
    with console.capture() as capture:
        print_lines(console, report.case_lines(rows, 300))
    assert "[bold red]|<script>`*x*`" in capture.get()
    assert all(line.plain.isprintable() for line in report.case_lines(rows, 80))


ON_GPU = {
    "illegal": (
        "import torch, triton, triton.language as tl\n"
        "    from fault_kernels import poke\n"
        "    out = torch.empty_like(a)\n"
        "    poke[(1,)](out, 1 << 42)\n"
        "    return out",
        "error",
        r"illegal memory access.*CUDA context",
    ),
    "endless": (
        "import torch\n    for _ in range(64): torch.cuda._sleep(1 << 62)\n    return a + b",
        "timeout",
        r"did not end within 40 s and was stopped",
    ),
    "asks": (
        "import torch\n    torch.empty(200 << 30, dtype=torch.uint8, device=a.device)\n    return a + b",
        "error",
        r"OutOfMemoryError.*200\.00 GiB.*total capacity",
    ),
}
POKE = """import triton, triton.language as tl

@triton.jit
def poke(out, far):
    tl.store(out + far, 1.0)
"""


@pytest.mark.gpu
def test_faults_of_the_device_cost_their_own_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An illegal access, an endless kernel and a request for 200 GB, beside implementations of every framework."""
    from suite.hardware.device import resolve

    monkeypatch.setenv("PYTHONPATH", inject(tmp_path, {name: body for name, (body, *_) in ON_GPU.items()}))
    (tmp_path / "fault_kernels.py").write_text(POKE, encoding="utf-8")
    op = ops.get("vector_add")
    names = ["torch", "torch/illegal", "jax", "torch/endless", "triton", "torch/asks", "cuda"]
    job = Job(op, (op.case((1 << 20,)),), named(*names))
    rows = {row.implementation: row for row in compare([job], Options(resolve("cuda"), timeout_s=40.0))}
    for name, (_, status, reason) in ON_GPU.items():
        row = rows[f"torch/{name}"]
        assert row.status == status, row.reason
        assert re.search(reason, row.reason), row.reason
    for name in ("torch", "jax", "triton", "cuda"):
        assert rows[name].status == "ok", rows[name].reason
        assert rows[name].device_us
        assert rows[name].recorder == rows["torch"].recorder
