"""Judges files of exercises in a process of its own, which may crash or hang. Prints of the files are shown."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from suite.core.errors import SuiteError
from suite.core.package import qualified
from suite.exercises import catalogue
from suite.exercises.catalogue import Exercise
from suite.exercises.judge import Outcome, Verdict, hint_for, judge
from suite.hardware.device import Device, resolve
from suite.hardware.threads import thread_settings
from suite.processes.child import environment_with_suite

LIMIT_S = 30.0
"""Processor time allowed for a file. That of the compiler and of other programs does not count."""
WAIT_S = 600.0
"""Wall time allowed for a file: ends one that waits without computing."""
ENVIRONMENT = {**os.environ, **thread_settings()}
Asked = tuple[Exercise, Path]


def verdicts(asked: Sequence[Asked], device: str = "cpu") -> list[Verdict]:
    """The verdict on each file. A file that ends or hangs the process is wrong, and the rest get a new process.

    Raises `UsageError` for a device that is not there, `SuiteError` if a framework or a compiler is missing.
    """
    resolve(device)
    found: list[Verdict] = []
    while len(found) < len(asked):
        rest = asked[len(found) :]
        some, ended = _in_one_process(rest, device)
        found += some
        if ended and len(some) < len(rest):
            found.append(Verdict(Outcome.WRONG, ended, hint_for(ended, rest[len(some)][0])))
    return found


def _in_one_process(asked: Sequence[Asked], device: str) -> tuple[list[Verdict], str]:
    """The verdicts that a process reached, and how it ended; empty if it reached all."""
    with tempfile.TemporaryDirectory() as folder:
        results = Path(folder, "verdicts")
        results.touch()
        files = [word for exercise, path in asked for word in (exercise.name, str(path.absolute()))]
        here = qualified("suite.exercises.apart")
        command = [sys.executable, "-m", here, device, str(LIMIT_S), str(results), *files]
        ended = ""
        try:
            done = subprocess.run(command, env=environment_with_suite(ENVIRONMENT), timeout=WAIT_S * len(asked))
            if done.returncode == -signal.SIGPROF:
                ended = f"it did not finish within {LIMIT_S:.0f} seconds of processor time"
            elif done.returncode < 0:
                ended = f"the process died of {signal.Signals(-done.returncode).name}"
            elif done.returncode:
                ended = f"the process ended with status {done.returncode}"
        except subprocess.TimeoutExpired:
            ended = f"it did not finish within {WAIT_S:.0f} seconds"
        read = [json.loads(line) for line in results.read_text(encoding="utf-8").splitlines()]
    if read and "error" in read[-1]:
        raise SuiteError(read[-1]["error"])
    return [Verdict(Outcome(each["outcome"]), each["reason"], each["hint"]) for each in read], ended


def main(arguments: Sequence[str]) -> None:
    """Judge the files of the command line, `DEVICE LIMIT RESULTS (NAME FILE)...`, and write a line for each verdict."""
    device, limit, results, *files = arguments
    where = resolve(device)
    _prepare(where)
    with open(results, "a", encoding="utf-8", buffering=1) as out:
        for name, path in zip(files[::2], files[1::2], strict=True):
            signal.setitimer(signal.ITIMER_PROF, float(limit))  # then SIGPROF ends this process
            try:
                found = vars(judge(catalogue.find(name), Path(path), where))
            except SuiteError as error:
                found = {"error": str(error)}
            print(json.dumps(found), file=out)


def _prepare(device: Device) -> None:
    """Set what the frameworks read when they are imported, as in a worker."""
    from suite import frameworks

    for name in frameworks.names():
        frameworks.get(name).prepare(device)


if __name__ == "__main__":
    main(sys.argv[1:])
