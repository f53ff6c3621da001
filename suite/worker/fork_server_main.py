"""Inside the process from which workers are forked: `python -m suite.worker.fork_server_main`, or a fork of another.

It has imported torch and the suite, has one thread, and has used no device and no kernel: all workers begin alike,
within milliseconds.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import select
import signal
import socket
import struct
import traceback
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from suite.hardware.device import Device
from suite.processes.codec import from_json
from suite.processes.preload import preload, share_eviction_memory
from suite.processes.startup import detach, set_up

LENGTH = struct.Struct("!I")
"""Length of a request in JSON: the environment and working directory of the worker, and whether it times calls.

Its descriptors come with it, in the order of OPTIONS; the descriptor of the output follows.
"""
OPTIONS = ("--requests", "--events", "--stacks", "--lifeline")
EVENT = struct.Struct("!cii")
"""STARTED with the process id, REFUSED with an error number, or ENDED with the process id and the exit status."""
STARTED, REFUSED, ENDED = b"s", b"r", b"e"


def _import_others() -> None:
    from suite.external import remote  # noqa: F401
    from suite.worker import process_main  # noqa: F401


def _work(device: Device, request: dict[str, Any], descriptors: Sequence[int]) -> None:
    """Do the work of a worker, in a process that is detached already."""
    from suite.worker import process_main

    with contextlib.suppress(OSError):  # the folder was removed meanwhile
        os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    requests, events, stacks, lifeline = descriptors
    set_up(stacks, lifeline)
    process_main.run(device, requests, events)


class ForkService:
    """Forks a worker for each request on `control`, and reports on it how workers end."""

    def __init__(self, device: Device, control: socket.socket) -> None:
        self.device, self.control = device, control
        self.workers: set[int] = set()

    def serve(self) -> None:
        """Serve until `control` is closed."""
        awake, wake = os.pipe()
        os.set_blocking(awake, False)
        os.set_blocking(wake, False)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        while True:
            ready, _, _ = select.select([self.control.fileno(), awake], [], [])
            with contextlib.suppress(BlockingIOError):
                os.read(awake, 4096)
            self._reap()
            if self.control.fileno() in ready and not self._fork():
                return

    def _reap(self) -> None:
        for worker in list(self.workers):
            pid, status = os.waitpid(worker, os.WNOHANG)
            if pid:
                self.workers.discard(worker)
                self.control.sendall(EVENT.pack(ENDED, worker, os.waitstatus_to_exitcode(status)))

    def _fork(self) -> bool:
        """Fork one worker; False at the end of the requests."""
        length, descriptors, _, _ = socket.recv_fds(self.control, LENGTH.size, len(OPTIONS) + 1)
        if len(length) < LENGTH.size:
            return False
        (size,) = LENGTH.unpack(length)
        request = json.loads(self.control.recv(size, socket.MSG_WAITALL))
        if request["times"]:
            with contextlib.suppress(MemoryError):  # the worker tries again, and its reply carries the reason
                share_eviction_memory(self.device)
        answer, ready = os.pipe()
        try:
            worker = os.fork()
        except OSError as error:
            self.control.sendall(EVENT.pack(REFUSED, error.errno or 0, 0))
        else:
            if worker == 0:
                self._run_worker(request, descriptors, ready)
            os.close(ready)
            os.read(answer, 1)  # the worker has its session
            ready = -1
            self.workers.add(worker)
            self.control.sendall(EVENT.pack(STARTED, worker, 0))
        for each in (answer, ready, *descriptors):
            if each >= 0:
                os.close(each)
        return True

    def _run_worker(self, request: dict[str, Any], descriptors: list[int], ready: int) -> None:
        """The new worker; does not return."""
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            *ends, output = descriptors
            detach([*ends, ready], output)
            os.write(ready, b"r")
            os.close(ready)
            _work(self.device, request, ends)
        except SystemExit:
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)


def begin(device: Device, ends: Mapping[str, int], output: int, ready: int) -> NoReturn:
    """Serve in a fork of another process. Closes `ready` once the descriptors of that process are closed."""
    try:
        detach([*ends.values(), ready], output)
        os.close(ready)
        _serve(device, ends["--control"], ends["--stacks"], ends["--lifeline"])
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def _serve(device: Device, control: int, stacks: int, lifeline: int) -> None:
    connection = socket.socket(fileno=control)
    set_up(stacks, lifeline)
    preload(device, _import_others)
    ForkService(device, connection).serve()


def main() -> None:
    parser = argparse.ArgumentParser(description="Internal: started by suite/worker/fork_server.py.")
    parser.add_argument("--device", required=True)
    for name in ("--control", "--stacks", "--lifeline"):
        parser.add_argument(name, type=int, required=True)
    arguments = parser.parse_args()
    device = from_json(Device, json.loads(arguments.device), "--device")
    _serve(device, arguments.control, arguments.stacks, arguments.lifeline)


if __name__ == "__main__":
    main()
