"""The command of `cluster start --hosts` runs: `dask ssh` starts a cluster with TLS by an sshd of the test."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from commands import SECONDS_TO_END, command
from faulty import ROOT

from suite.cluster.dask_settings import FOLDER_VARIABLE, PORT
from suite.results.csv_file import read_rows
from suite.results.row import Status

SSHD = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
MISSING = [name for name in ("distributed", "paramiko") if find_spec(name) is None]
MISSING += [name for name, path in (("sshd", SSHD), ("ssh-keygen", shutil.which("ssh-keygen"))) if path is None]
pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)}")
CONFIGURATION = """\
Port {port}
ListenAddress 127.0.0.1
HostKey {folder}/host
AuthorizedKeysFile {folder}/user.pub
StrictModes no
PasswordAuthentication no
UsePAM no
PidFile none
"""


def free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])


@contextlib.contextmanager
def sshd(folder: Path) -> Iterator[int]:
    """The port of an sshd on this host that lets in whoever has the key `folder`/user."""
    assert SSHD is not None
    port = free_port()
    for name in ("host", "user"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)], check=True)
    (folder / "conf").write_text(CONFIGURATION.format(port=port, folder=folder))
    if os.getuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)  # sshd changes to it as root
    with subprocess.Popen([SSHD, "-D", "-f", str(folder / "conf"), "-E", str(folder / "log")]) as process:
        try:
            wait_for(port, process)
            yield port
        finally:
            process.terminate()


def wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + SECONDS_TO_END
    while process.poll() is None and time.monotonic() < end:
        with contextlib.suppress(ConnectionRefusedError), socket.create_connection(("127.0.0.1", port)):
            return
        time.sleep(0.1)
    raise AssertionError(f"nothing listens at port {port}")


@pytest.mark.slow(seconds=40)
def test_the_printed_command_starts_workers_that_run_cases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    certificates = tmp_path / "a folder"  # its name needs quotes
    monkeypatch.setenv(FOLDER_VARIABLE, str(certificates))
    start = [sys.executable, "-m", "suite", "cluster", "start", "--hosts", "127.0.0.1,localhost"]
    printed = subprocess.run(start, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    (line,) = [each for each in printed.splitlines() if not each.startswith("#")]
    program, ssh, *words = shlex.split(line)
    assert (program, ssh) == ("dask", "ssh")
    scheduler = free_port()
    words[words.index(str(PORT))] = str(scheduler)
    address = f"tls://127.0.0.1:{scheduler}"
    run = command("vector_add", "--cluster", address, "--no-time", "--inputs", "none", "--impl", "torch,numpy")
    with sshd(tmp_path) as port, (tmp_path / "said").open("wb") as said:
        given = ["--ssh-port", str(port), "--ssh-private-key", str(tmp_path / "user")]
        dask = [sys.executable, "-m", program, ssh, *given, *words]
        with subprocess.Popen(dask, cwd=ROOT, stdout=said, stderr=said) as process:
            try:
                wait_for(scheduler, process)
                done = _when_workers_have_joined([*run, "--out", str(tmp_path / "out")])
            finally:
                process.send_signal(signal.SIGINT)
                ended = process.wait(SECONDS_TO_END)
    assert done.returncode == 0, (done.stderr, (tmp_path / "said").read_text()[-2000:])
    assert ended == 0
    rows = list(read_rows(tmp_path / "out" / "vector_add.csv"))
    assert rows
    assert {row.status for row in rows} == {Status.OK}


def _when_workers_have_joined(run: list[str]) -> subprocess.CompletedProcess[str]:
    end = time.monotonic() + SECONDS_TO_END
    while True:
        done = subprocess.run(run, cwd=ROOT, capture_output=True, text=True, check=False)
        if "no worker has joined" not in done.stderr or time.monotonic() > end:
            return done
        time.sleep(0.5)
