"""Simulates a run on a cluster whose workers are killed at random: `python -m validation.simulated_cluster`.

The scheduler, the workers, their nannies, the messages and the submitting side are real, with TLS. Only the devices are
simulated: a task sleeps and returns synthetic rows. Ends with status 1 if a row is lost or comes twice. docs/scaling.md
has the output of a run.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from suite.cluster import dask_settings, remote
from suite.hardware.device import resolve
from suite.problem.case import Case
from suite.problem.operation import Operation
from suite.results.row import Row, Status
from suite.runner.observer import Observer
from suite.runner.options import Options
from suite.runner.plan import Job, plan
from suite.runner.selection import Selection
from validation.simulation.host import PIDS


class Seen(Observer):
    """Counts how often each row and each case comes."""

    def __init__(self) -> None:
        self.rows = Counter[tuple[str, ...]]()
        self.finished = 0
        self.lost = 0

    def store(self, operation: Operation, rows: Sequence[Row]) -> None:
        self.rows.update(row.key for row in rows)
        self.lost += sum(row.status is Status.ERROR for row in rows)

    def case_finished(self, operation: Operation, rows: Sequence[Row]) -> None:
        self.finished += 1


@contextmanager
def cluster(folder: Path, workers: int) -> Iterator[tuple[str, int]]:
    """The address of a cluster of `workers` simulated devices, and the process id of its scheduler."""
    os.environ[dask_settings.FOLDER_VARIABLE] = str(folder)
    os.environ["DASK_CONFIG"] = str(dask_settings.make_certificate() / "dask.yaml")
    os.environ["DASK_DISTRIBUTED__WORKER__MULTIPROCESSING_METHOD"] = "forkserver"  # faster than to start anew
    os.environ[PIDS] = str(folder / "pids")
    (folder / "pids").mkdir()
    where = folder / "address"
    command = [sys.executable, "-m", "distributed.cli.dask_scheduler", "--host", "127.0.0.1", "--port", "0"]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with subprocess.Popen([*command, "--scheduler-file", str(where), "--no-dashboard"], **quiet) as scheduler:
        while not where.exists() or '"address"' not in where.read_text():
            time.sleep(0.1)
        address = next(line.split('"')[3] for line in where.read_text().splitlines() if '"address"' in line)
        host = [sys.executable, "-m", "validation.simulation.host", address, str(workers)]
        with subprocess.Popen(host, **quiet) as process:
            try:
                while len(list((folder / "pids").iterdir())) < workers:
                    if process.poll() is not None:
                        raise SystemExit(f"the workers have ended: exit status {process.returncode}")
                    time.sleep(0.5)
                yield address, scheduler.pid
            finally:
                process.send_signal(signal.SIGINT)
                process.wait()
                scheduler.send_signal(signal.SIGINT)


def kill_at_random(folder: Path, every_s: float, ended: threading.Event, kills: list[int]) -> None:
    """Kill one worker in each period, until `ended`."""
    while not ended.wait(every_s):
        if not (there := list((folder / "pids").iterdir())):
            continue
        victim = random.choice(there)
        victim.unlink()
        with suppress(ProcessLookupError):
            os.kill(int(victim.name), signal.SIGKILL)
            kills.append(int(victim.name))


def peak_mb(pid: int | str) -> float:
    """The peak memory of a process."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("VmHWM"))) / 1024


def simulate(workers: int, cases: int, every_s: float) -> bool:
    """Run the cases, print the outcome, and return True if no row was lost and none came twice."""
    device, seen, kills, ended = resolve("cpu"), Seen(), list[int](), threading.Event()
    (job,) = plan(Selection(("vector_add",), ("torch", "numpy"), shapes=("N=1",), dtypes=("float32",)), device)
    job = Job(job.op, tuple(Case("vector_add", (("N", size),)) for size in range(1, cases + 1)), job.implementations)
    with TemporaryDirectory() as name, cluster(Path(name), workers) as (address, scheduler):
        before = peak_mb("self"), peak_mb(scheduler)
        killer = threading.Thread(target=kill_at_random, args=(Path(name), every_s, ended, kills))
        killer.start()
        begin = time.monotonic()
        try:
            rows = remote.compare([job], Options(device, timed=False), seen, address=address)
        finally:
            ended.set()
            killer.join()
        took = time.monotonic() - begin
        after = peak_mb("self"), peak_mb(scheduler)
    whole = len(rows) == len(seen.rows) == cases * len(job.implementations) and seen.finished == cases
    print(f"{workers} workers, {cases} cases, {len(rows)} rows in {took:.0f} s; workers killed: {len(kills)}")
    print(f"rows of cases lost three times: {seen.lost}; rows that came twice: {sum(seen.rows.values()) - len(rows)}")
    for who, first, last in zip(("submitting process", "scheduler"), before, after, strict=True):
        print(f"peak memory of the {who}: {last:.0f} MB, {first:.0f} MB before the run")
    return whole and set(seen.rows.values()) == {1}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=64)
    parser.add_argument("--cases", type=int, default=5000)
    parser.add_argument("--kill-every", type=float, default=1.0, help="seconds between two killed workers")
    given = parser.parse_args()
    raise SystemExit(0 if simulate(given.workers, given.cases, given.kill_every) else 1)


if __name__ == "__main__":
    main()
