"""Nothing breaks a run: every fault is injected for real, and costs one row, or one clear line, and nothing else."""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from faulty import CRASHES, ROOT, TIMED, inject, lines
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from suite import ops
from suite.cli import commands as cli
from suite.core.errors import ResultsError, UsageError
from suite.core.files import PART, FolderLock
from suite.hardware.device import Device
from suite.results import render as report
from suite.results import resume
from suite.results.row import Row, read_rows
from suite.results.store import Results
from suite.runner import compare as run
from suite.runner.plan import Job

CPU = Device("cpu", name="CPU")
SMALL = ["--op", "vector_add", "--shape", "N=64", "--device", "cpu", "--no-time"]
PLAIN = [*SMALL, "--impl", "torch", "--impl", "numpy"]
SECONDS_TO_END = 15.0  # one or two where the processors are free; tests share them


@pytest.fixture(scope="module", autouse=True)
def _code_that_stays() -> Iterator[None]:
    """Somebody may be editing the code while the tests run: an interrupted run is not continued by other code."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(resume, "code_digest", lambda: "of today")
        yield


def vector_add(*names: str) -> Job:
    op = ops.get("vector_add")
    return Job(op, (op.case((64,)),), lines(*names))


def compare(job: Job, **options: object) -> dict[str, Row]:
    return {row.implementation: row for row in run.compare([job], run.Options(CPU, **options))}  # type: ignore[arg-type]


def command(*arguments: str | Path) -> list[str]:
    return [sys.executable, "-m", "suite", "compare", *map(str, arguments)]


def call(monkeypatch: pytest.MonkeyPatch, *arguments: str | Path) -> int:
    """`python -m suite ARGUMENTS` in this process; the exit status."""
    monkeypatch.setattr(sys, "argv", ["suite", *map(str, arguments)])
    with pytest.raises(SystemExit) as caught:
        cli.main()
    return int(caught.value.code or 0)


# ------------------------------------------------------------------------------------------------- faults of kernels


@pytest.fixture(scope="module")
def faults(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", inject(tmp_path_factory.mktemp("faults"), {**CRASHES, **TIMED}))
        yield


EACH = {
    "segfault": ("error", r"SIGSEGV at fault_segfault\.py:2"),
    "kills_itself": ("error", "SIGKILL"),
    "raises": ("error", r"RuntimeError: no luck today \(fault_raises\.py:2\)"),
    "loops_in_c": ("timeout", r"first call .* did not end within 5 s and was stopped.* at fault_loops_in_c\.py:2"),
    "allocates": ("error", r"out of host memory: it took more than the 0\.7 GiB"),
    "wrong": ("wrong", "value: "),
    "dies_later": ("error", r"while timed: .*SIGSEGV at fault_dies_later\.py:4"),
    "lazy_later": ("wrong", r"while timed: value: at "),
    "hangs_later": ("timeout", r"while timed: a timed call, after calls that had ended, did not end within 5 s"),
}


def test_each_fault_costs_its_own_row_and_no_other(faults: None) -> None:
    """Right lines before, between and after; they are checked, timed and ranked as if the others were not there."""
    broken = [f"torch/{name}" for name in EACH]
    rows = compare(
        vector_add("torch", *broken[:4], "torch/right", *broken[4:], "numpy"), timeout_s=5.0, memory_bytes=700 << 20
    )
    for name, (status, reason) in EACH.items():
        row = rows[f"torch/{name}"]
        assert row.status == status, row.reason
        assert re.search(reason, row.reason), row.reason
    for name in ("torch", "torch/right", "numpy"):
        assert (rows[name].status, rows[name].reason) == ("ok", "")
        assert rows[name].device_us
        assert rows[name].vs_best, "ranked against the vendor line of the same measurement"


def test_a_worker_killed_from_outside_is_one_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = tmp_path / "pid"
    body = f"import os, time; open({str(told)!r}, 'w').write(f'{{os.getpid()}}.'); time.sleep(600)"
    monkeypatch.setenv("PYTHONPATH", inject(tmp_path / "faults", {"waits": body}))

    def kill() -> None:
        while not told.exists() or not told.read_text(encoding="ascii").endswith("."):
            time.sleep(0.05)
        os.kill(int(told.read_text(encoding="ascii")[:-1]), signal.SIGKILL)

    killer = threading.Thread(target=kill, daemon=True)
    killer.start()
    rows = compare(vector_add("torch", "torch/waits", "numpy"), timed=False)
    assert rows["torch/waits"].status == "error"
    assert rows["torch/waits"].reason.startswith("the worker was killed by SIGKILL (from outside")
    assert rows["torch"].status == rows["numpy"].status == "ok"


@pytest.mark.skipif(shutil.which(os.environ.get("CXX", "c++")) is None, reason="needs a C++ compiler")
@pytest.mark.parametrize(
    ("script", "status", "reason"),
    [
        ("echo 'kernel.cu:7: error: no such thing' >&2; exit 1", "error", "C\\+\\+ compiler failed.*no such thing"),
        ("kill -9 $$", "error", "BuildError: .*vector_add.cu: the C\\+\\+ compiler failed"),
        (None, "unavailable", "no C\\+\\+ compiler .*apt install g\\+\\+"),
    ],
    ids=["fails", "is killed", "is missing"],
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
    rows = compare(vector_add("torch", "cuda", "numpy"), timed=False)
    assert rows["cuda"].status == status
    assert re.search(reason, rows["cuda"].reason), rows["cuda"].reason
    assert rows["torch"].status == rows["numpy"].status == "ok"


def test_what_a_kernel_says_cannot_leave_its_cell(faults: None, tmp_path: Path) -> None:
    """Control characters, terminal markup, Markdown, HTML, line ends, and what UTF-8 cannot say."""
    from rich.console import Console

    rows = list(compare(vector_add("torch/speaks", "torch"), timed=False).values())
    with Results(tmp_path, {}) as results:
        results.put("vector_add", rows)
    assert read_rows(tmp_path / "vector_add.csv") == rows
    assert len((tmp_path / "vector_add.csv").read_text(encoding="utf-8").splitlines()) == 3
    said = rows[0].reason
    assert said.isprintable()
    assert "[bold red]|<script>`*x*`" in said
    table = (tmp_path / "vector_add.md").read_text(encoding="utf-8")
    assert "\\[bold red\\]\\|&lt;script&gt;\\`\\*x\\*\\`" in table
    console = Console(width=300, force_terminal=True)
    with console.capture() as capture:
        console.print(report.rich_table(rows))
    assert "[bold red]|<script>`*x*`" in capture.get()
    assert all(line.isprintable() for line in report.plain_lines(rows))


# ---------------------------------------------------------------------------------------------------------- endings


@pytest.mark.parametrize("fatal", [signal.SIGKILL, signal.SIGTERM], ids=["SIGKILL", "SIGTERM"])
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
    assert psutil.wait_procs(family, timeout=5)[1] == []


def catches_signals(process: subprocess.Popen[bytes]) -> bool:
    """Whether the command has come so far as to handle SIGTERM, which Python itself does not."""
    with contextlib.suppress(OSError):
        status = Path(f"/proc/{process.pid}/status").read_text(encoding="ascii")
        caught = re.search(r"^SigCgt:\s*([0-9a-f]+)", status, re.MULTILINE)
        return caught is not None and bool(int(caught[1], 16) >> (signal.SIGTERM - 1) & 1)
    return False


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the code, which nobody edits, for the same reason."""
    copy = tmp_path_factory.mktemp("tree")
    for folder in resume.SOURCES:
        shutil.copytree(ROOT / folder, copy / folder, ignore=shutil.ignore_patterns("__pycache__"))
    return copy


def interrupted(tree: Path, out: Path, delay: Callable[[], float], after: int | None) -> tuple[int, str, float]:
    """A run that gets a SIGINT, `delay` s after its start or after it has begun on its row number `after`.

    Its exit status, what it said on stderr, and the seconds it took to end.
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
        status = process.wait(60)
        return status, said.decode(), time.monotonic() - begin


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_a_run_interrupted_at_random_moments_loses_nothing(seed: int, tree: Path, tmp_path: Path) -> None:
    """25 times for each seed; then it is resumed, and what is done is not repeated.

    Half of the moments lie anywhere from the start on, half where rows are being written.
    """
    randomly = random.Random(seed)
    out = tmp_path / "out"
    table = out / "vector_add.csv"
    attempts, before = 0, {}
    while attempts < 25:
        attempts += 1
        after = None if attempts % 2 else randomly.randrange(3)
        status, said, seconds = interrupted(
            tree, out, lambda late=0.03 if after is not None else 1.5: randomly.uniform(0.0, late), after
        )
        assert status in (0, 130, -signal.SIGINT), said
        assert "Traceback" not in said, said
        assert seconds < SECONDS_TO_END
        rows = {row.key: row for row in read_rows(table)} if table.exists() else {}
        assert {key: rows.get(key) for key in before} == before, "what was finished is still there, and not repeated"
        if out.exists():
            begun = re.findall(r", (\d+)/6\] ", said)
            assert len(rows) >= max([*map(int, begun), 0]), "every row that was finished is on the disk"
            assert not [path for path in out.iterdir() if path.name.endswith(PART)]
            record = out / "environment.json"
            if rows or record.exists():
                state = json.loads(record.read_text(encoding="utf-8"))["run"]
                assert len(rows) == 6 if state["complete"] else status != 0
        before = rows
        if len(rows) == 6:  # begin anew, so that the next attempts find something to break
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
    rows = {row.key: row for row in read_rows(table)}
    assert len(rows) == 6
    assert {key: rows[key] for key in before} == before
    assert len(re.findall(r": checking", done.stderr)) == 6 - len(before)
    assert {path.name for path in out.iterdir()} == {"vector_add.csv", "vector_add.md", "environment.json"}
    assert not [p for p in psutil.process_iter() if str(out) in " ".join(_cmdline(p))]


def _cmdline(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


# -------------------------------------------------------------------------------------------------------- the folder


@pytest.fixture
def mounted(tmp_path: Path) -> Iterator[Callable[[str], Path]]:
    """A small file system of its own, where this user may mount one."""
    folder = tmp_path / "mounted"
    folder.mkdir()

    def mount(options: str) -> Path:
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", options, "none", str(folder)], capture_output=True, check=False
        )
        if done.returncode != 0:
            pytest.skip("may not mount a file system here")
        return folder

    if shutil.which("mount") is None:
        pytest.skip("there is no mount")
    yield mount
    subprocess.run(["umount", "-l", str(folder)], capture_output=True, check=False)


def fill(disk: Path, free_pages: int = 0) -> Path:
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while file.write(b"x" * 4096) == 4096:
            pass
    os.truncate(filler, filler.stat().st_size - 4096 * free_pages)
    return filler


def parts(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if path.name.endswith(PART) or path.name == ".lock"]


def test_a_full_disk_keeps_what_was_there_and_gets_the_rest_when_it_has_room(mounted: Callable[[str], Path]) -> None:
    disk = mounted("size=64k")
    old = disk / "vector_add.csv"
    old.write_text("an older table", encoding="utf-8")
    filler = fill(disk)
    with pytest.raises(ResultsError, match=r"cannot write results to .*: No space left on device; give another folder"):
        Results(disk, {})
    fill(disk, free_pages=2)  # for the lock and the environment record, not for the table
    told: list[str] = []
    with Results(disk, {}, tell=told.append) as results:
        for name in ("torch", "numpy"):
            results.put("vector_add", [Row("vector_add", "N=64", "float32", "ieee", name)])
        assert "No space left on device; what was there is unchanged" in str(results.problem)
        assert len(told) == 1
        assert old.read_text(encoding="utf-8") == "an older table"
        filler.unlink()
        results.complete()
        assert results.problem is None
    assert [row.implementation for row in read_rows(old)] == ["torch", "numpy"]
    assert json.loads((disk / "environment.json").read_text(encoding="utf-8"))["run"]["complete"]
    assert parts(disk) == []


def test_a_kernel_that_fills_the_disk_costs_what_is_written_not_what_is_shown(
    mounted: Callable[[str], Path], tmp_path: Path
) -> None:
    disk = mounted("size=64k")
    body = f"import contextlib\n    with open({str(disk / 'filler')!r}, 'ab', 0) as f, contextlib.suppress(OSError):\n"
    body += "        while f.write(b'x' * 4096): pass\n    return a + b"
    environment = {**os.environ, "PYTHONPATH": inject(tmp_path / "faults", {"fills": body})}
    arguments = [*SMALL, "--dtype", "float32", "--impl", "torch", "--impl", "torch/fills", "--impl", "numpy"]
    done = subprocess.run(
        command(*arguments, "--out", disk), cwd=ROOT, env=environment, capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 1
    assert len(re.findall("  native  ok  ", done.stdout)) == 3
    assert done.stderr.count("No space left on device") >= 1
    assert "Traceback" not in done.stderr
    assert "written to" not in done.stderr
    assert read_rows(disk / "vector_add.csv")[0].implementation == "torch"
    assert parts(disk) == []


def test_a_limit_on_file_sizes_is_a_full_disk_too(tmp_path: Path) -> None:
    (tmp_path / "vector_add.csv").write_text("an older table", encoding="utf-8")
    done = subprocess.run(
        command(*PLAIN, "--dtype", "float32", "--out", tmp_path), cwd=ROOT, capture_output=True, text=True, timeout=100,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (500, 500)),
    )  # fmt: skip
    assert done.returncode == 1
    assert len(re.findall("  native  ok  ", done.stdout)) == 2
    assert "environment.json: File too large; what was there is unchanged; the run goes on" in done.stderr
    assert "Traceback" not in done.stderr
    assert (tmp_path / "vector_add.csv").read_text(encoding="utf-8") == "an older table"
    assert parts(tmp_path) == []


def test_a_folder_that_cannot_be_written_to_is_one_line_before_any_work(
    mounted: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = mounted("size=64k,ro")
    assert call(monkeypatch, "compare", *PLAIN, "--out", folder) == 1
    printed = capsys.readouterr()
    assert printed.err == (
        f"error: cannot write results to {folder}: Read-only file system; give another folder with --out\n"
    )
    assert call(monkeypatch, "compare", *PLAIN, "--out", folder / "new") == 1
    assert "Read-only file system" in capsys.readouterr().err


def test_what_is_in_the_way_is_named_and_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("mine", encoding="utf-8")
    assert call(monkeypatch, "compare", *PLAIN, "--out", tmp_path / "file" / "below") == 1
    assert "file/below: Not a directory; give another folder" in capsys.readouterr().err
    (tmp_path / "out" / "vector_add.csv").mkdir(parents=True)
    told: list[str] = []
    with Results(tmp_path / "out", {}, tell=told.append) as results:
        results.put("vector_add", [Row("vector_add", "N=64", "float32", "ieee", "torch")])
    assert "vector_add.csv: Is a directory; what was there is unchanged" in told[0]
    assert (tmp_path / "file").read_text(encoding="utf-8") == "mine"
    assert parts(tmp_path / "out") == []


def test_a_missing_folder_is_made_and_an_unused_one_is_removed(tmp_path: Path) -> None:
    with Results(tmp_path / "a" / "b", {}) as results:
        results.complete()
    assert not (tmp_path / "a").exists()
    with Results(tmp_path / "a" / "b", {}) as results:
        results.put("vector_add", [Row("vector_add", "N=64", "float32", "ieee", "torch")])
    assert (tmp_path / "a" / "b" / "vector_add.csv").exists()


def test_two_runs_into_one_folder_do_not_mix(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The second ends at once and says who has the folder. A lock that a killed process left blocks nobody."""
    code = "import sys, time; from pathlib import Path; from suite.core.files import FolderLock\n"
    code += f"lock = FolderLock(Path({str(tmp_path)!r})); print('locked', flush=True); time.sleep(600)"
    with subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE) as first:
        assert first.stdout is not None
        assert first.stdout.readline() == b"locked\n"
        assert call(monkeypatch, "compare", *PLAIN, "--out", tmp_path) == 2
        assert f"process {first.pid} is writing results there" in capsys.readouterr().err
        first.kill()
    assert (tmp_path / ".lock").exists()
    lock = FolderLock(tmp_path)
    with pytest.raises(UsageError, match=f"process {os.getpid()} is writing"):
        FolderLock(tmp_path)
    lock.release()
    assert list(tmp_path.iterdir()) == []


def test_parts_of_a_killed_run_are_swept_and_nothing_else(tmp_path: Path) -> None:
    for name in (f".vector_add.csv.abc{PART}", f".environment.json.abc{PART}", f".limits.json.abc{PART}", "mine"):
        (tmp_path / name).touch()
    with Results(tmp_path, {}, operations=["vector_add"]):
        pass
    assert {path.name for path in tmp_path.iterdir()} == {f".limits.json.abc{PART}", "mine"}


# ------------------------------------------------------------------------------------------------------------ --resume


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a complete run."""
    folder = tmp_path_factory.mktemp("finished")
    with pytest.MonkeyPatch.context() as patch:
        assert call(patch, "compare", *PLAIN, "--out", folder) == 0
    return folder


def never(*_: object, **__: object) -> None:
    raise AssertionError("a worker was asked")


def test_resuming_what_is_complete_does_nothing_again(
    finished: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = (finished / "vector_add.csv").read_bytes()
    monkeypatch.setattr("suite.worker.pool.Pool.ask", never)
    assert call(monkeypatch, "compare", *PLAIN, "--timeout", "60", "--json", "--out", finished, "--resume") == 0
    printed = capsys.readouterr()
    assert len(json.loads(printed.out)["rows"]) == 6
    assert "resumed: 6 rows are there already" in printed.err
    assert (finished / "vector_add.csv").read_bytes() == before


def test_resuming_into_an_empty_or_missing_folder_is_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("suite.runner.compare.compare", lambda *_, **__: [])
    assert call(monkeypatch, "compare", *PLAIN, "--out", tmp_path / "new", "--resume") == 0


def _change(name: str, value: object) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        path = folder / "environment.json"
        record = json.loads(path.read_text(encoding="utf-8"))
        place = record["run"]["settings"]
        *parents, last = name.split("/")
        for parent in parents:
            place = place[parent]
        place[last] = value
        path.write_text(json.dumps(record), encoding="utf-8")

    return change


def _write(name: str, text: str) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_text(text, encoding="utf-8")


def _older(folder: Path) -> None:
    record = json.loads((folder / "environment.json").read_text(encoding="utf-8"))
    del record["run"]
    (folder / "environment.json").write_text(json.dumps(record), encoding="utf-8")


def _foreign(folder: Path) -> None:
    """A row that claims to be of an operation which is a path."""
    path = folder / "vector_add.csv"
    path.write_text(path.read_text(encoding="utf-8").replace("vector_add", "../../etc/passwd"), encoding="utf-8")


UNUSABLE: dict[str, tuple[list[str], Callable[[Path], object], int, str]] = {
    "another seed": (["--seed", "7"], lambda folder: None, 2, "--seed not given there, 7 now"),
    "other lines": (
        ["--impl", "jax"],
        lambda folder: None,
        2,
        '--impl ["torch", "numpy"] there, ["torch", "numpy", "jax"] now',
    ),
    "another device": ([], _change("device/name", "another"), 2, 'device name "another" there, '),
    "other versions": ([], _change("versions/torch", "1.0"), 2, 'versions torch "1.0" there, '),
    "other code": ([], _change("code/digest", ""), 2, "the code of the suite or of a kernel has changed since"),
    "no settings": ([], _older, 2, "does not say what its run was for (an older version?)"),
    "no record": (
        [],
        lambda folder: (folder / "environment.json").unlink(),
        2,
        "has vector_add.csv, but no environment.json",
    ),
    "damaged record": (
        [],
        _write("environment.json", '{"run": '),
        1,
        "environment.json: not a readable environment record",
    ),
    "strange record": ([], _write("environment.json", "[[]]"), 2, "does not say what its run was for"),
    "damaged table": ([], _write("vector_add.csv", "operation,case\n1"), 1, "not a results table of this version"),
    "empty table": ([], _write("vector_add.csv", ""), 1, "not a readable results table"),
    "foreign table": ([], _foreign, 1, "row 1: it is of ../../etc/passwd"),
}


@pytest.mark.parametrize(("more", "damage", "status", "complaint"), UNUSABLE.values(), ids=UNUSABLE.keys())
def test_what_cannot_be_resumed_is_one_line_and_stays(
    more: list[str],
    damage: Callable[[Path], object],
    status: int,
    complaint: str,
    finished: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = tmp_path / "out"
    shutil.copytree(finished, folder)
    damage(folder)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    monkeypatch.setattr("suite.worker.pool.Pool.ask", never)
    assert call(monkeypatch, "compare", *PLAIN, *more, "--out", folder, "--resume") == status
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("error: ")
    assert printed.err.count("\n") == 1
    assert complaint in printed.err
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_an_older_table_is_not_taken_for_the_interrupted_runs(finished: Path, tmp_path: Path) -> None:
    """A run that has not come to an operation leaves its old table there: its rows are done again."""
    folder = tmp_path / "out"
    shutil.copytree(finished, folder)
    record = json.loads((folder / "environment.json").read_text(encoding="utf-8"))
    record["run"]["tables"] = []
    (folder / "environment.json").write_text(json.dumps(record), encoding="utf-8")
    with Results(folder, {}, operations=["vector_add"], settings=record["run"]["settings"], resumed=True) as results:
        assert results.kept == {}


# ------------------------------------------------------------------------------------------------------- command lines

words = st.text(st.characters(blacklist_categories=("Cs",), blacklist_characters="\0"), max_size=12)
VALUES = {
    "--op": ["all", "matmul", "vector_add", "attention", "sigmoid", "../../x"],
    "--impl": ["torch", "*", "cuda*", "[", "with/x"],
    "--dtype": ["float32", "float16", "bfloat16", "float64"],
    "--precision": ["ieee", "tf32", "fp8"],
    "--shape": ["N=64", "M=16,N=16,K=16", "M=0,N=1,K=1", "M=,N", "N=99999999999999999999", "N=-1", "B=1,H=2"],
    "--layout": ["nn", "tt", "zz"],
    "--inputs": ["normal", "nan", "all", "huge"],
    "--device": ["cpu", "cuda", "cuda:7", "tpu", "[red]"],
    "--cache": ["cold", "warm", "tepid"],
    "--seed": ["0", "-1", "1e3", "9" * 30],
    "--timeout": ["120", "0", "nan", "inf", "-1", "1e99"],
    "--with": ["/nonexistent.py", ".", "/dev/null"],
    "--threshold": ["0.1", "nan"],
}
FLAGS = [
    "--causal",
    "--no-causal",
    "--sweep",
    "--transfers",
    "--compile",
    "--no-time",
    "--json",
    "--resume",
    "--measure",
]
FLAGS += ["--markdown", "--help", "--wat", "--"]
options = st.one_of(
    st.sampled_from(FLAGS).map(lambda flag: [flag]),
    st.sampled_from(sorted(VALUES)).flatmap(
        lambda name: (st.sampled_from(VALUES[name]) | words).map(lambda value: [name, value])
    ),
    words.map(lambda word: [word]),
)
arguments = st.tuples(st.sampled_from(["compare", "compare", "compare", "diff", "list"]), st.lists(options, max_size=6))


@settings(deadline=None, max_examples=120, suppress_health_check=list(HealthCheck))
@given(given=arguments, ending=st.sampled_from([None, None, KeyboardInterrupt(), ResultsError("the disk is [full]")]))
def test_no_command_line_shows_a_traceback(
    given: tuple[str, list[list[str]]],
    ending: BaseException | None,
    finished: Path,
    tmp_path_factory: pytest.TempPathFactory,
    capsys_of_module: Callable[[], tuple[str, str]],
) -> None:
    """Exit status 0, 1, 2 or 130, and an error that is a line. Nothing is measured; all the rest is real."""
    name, options = given
    flat = [word for option in options for word in option]
    folder = tmp_path_factory.mktemp("lines")

    def stub(*_: object, **__: object) -> list[Row]:
        if ending is not None:
            raise ending
        return []

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run, "compare", stub)
        patch.setattr("suite.hardware.environment_record", lambda *_: {"device": {"name": "D"}, "packages": {}})
        patch.chdir(folder)
        more = ["--op", "vector_add", "--out", str(folder / "out")] if name == "compare" else []
        more = [str(finished), str(finished)] if name == "diff" else more
        status = call(patch, name, *more, *flat)
    out, err = capsys_of_module()
    assert status in (0, 1, 2, 130)
    assert "Traceback" not in out + err
    assert {path.name for path in folder.iterdir()} <= {"out"}, "nothing is written anywhere else"


@pytest.fixture
def capsys_of_module(capsys: pytest.CaptureFixture[str]) -> Callable[[], tuple[str, str]]:
    return lambda: tuple(capsys.readouterr())  # type: ignore[return-value]


# ------------------------------------------------------------------------------------------------------------ security


def test_a_cache_that_others_can_write_to_is_a_reason_not_to_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from suite.frameworks import _caches
    from suite.frameworks import get as adapter

    open_to_all = tmp_path / "open"
    open_to_all.mkdir()
    open_to_all.chmod(0o777)
    monkeypatch.setattr("suite.frameworks.base.torch_is_cpu_build", lambda: False)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object())
    gpu = Device("cuda", 0, "NVIDIA H200", (9, 0))
    for name, variable in (
        ("triton", "TRITON_CACHE_DIR"),
        ("jax", "JAX_COMPILATION_CACHE_DIR"),
        ("torch", "TORCHINDUCTOR_CACHE_DIR"),
    ):
        with monkeypatch.context() as patch:
            patch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
            patch.delenv(variable, raising=False)
            assert adapter(name).missing(gpu) is None
            patch.setenv(variable, str(open_to_all))
            told = adapter(name).missing(gpu) or ""
            assert f"build cache {open_to_all} can be written by other users (mode 0777)" in told
            assert f"chmod 700 {open_to_all}" in told
            assert variable in told
            _caches.use({variable: "x"})
            assert os.environ[variable] != str(open_to_all)
            Path(os.environ[variable]).rmdir()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("TRITON_CACHE_DIR", raising=False)
    _caches.use({"TRITON_CACHE_DIR": "triton"})
    assert Path(os.environ["TRITON_CACHE_DIR"]) == tmp_path / "cache" / "kernel-suite" / "triton"
    assert Path(os.environ["TRITON_CACHE_DIR"]).stat().st_mode & 0o777 == 0o700
    monkeypatch.delenv("TRITON_CACHE_DIR")
    assert _caches.fault({"TRITON_CACHE_DIR": "triton"}) is None
    (tmp_path / "cache" / "kernel-suite").chmod(0o770)
    assert "can be written by other users (mode 0770)" in (_caches.fault({"TRITON_CACHE_DIR": "triton"}) or "")


def test_nothing_is_unpickled() -> None:
    """What crosses a process or a file is JSON, CSV or an array of a framework."""
    for folder in ("suite", "cuda_ref", "triton_kernels", "jax_impls", "torch_impls", "numpy_impls"):
        for path in (ROOT / folder).rglob("*.py"):
            text = path.read_text(encoding="utf-8")
            assert not re.search(r"\b(c?pickle|marshal|shelve|dill|joblib|torch\.load|allow_pickle)\b", text), path


# ------------------------------------------------------------------------------------------------------------ on a GPU

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
    """An illegal access, a kernel that never ends and a request for 200 GB, beside lines of every framework."""
    from suite.hardware.device import resolve

    monkeypatch.setenv("PYTHONPATH", inject(tmp_path, {name: body for name, (body, *_) in ON_GPU.items()}))
    (tmp_path / "fault_kernels.py").write_text(POKE, encoding="utf-8")
    op = ops.get("vector_add")
    names = ["torch", "torch/illegal", "jax", "torch/endless", "triton", "torch/asks", "cuda"]
    job = Job(op, (op.case((1 << 20,)),), lines(*names))
    rows = {row.implementation: row for row in run.compare([job], run.Options(resolve("cuda"), timeout_s=40.0))}
    for name, (_, status, reason) in ON_GPU.items():
        row = rows[f"torch/{name}"]
        assert row.status == status, row.reason
        assert re.search(reason, row.reason), row.reason
    for name in ("torch", "jax", "triton", "cuda"):
        assert rows[name].status == "ok", rows[name].reason
        assert rows[name].device_us
        assert rows[name].recorder == rows["torch"].recorder
