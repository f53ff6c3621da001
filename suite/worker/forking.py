"""The process from which workers are forked: `fork_server.py` starts it as `python -m suite.worker.forking`.

It has imported torch and the suite, has one thread, and has seen no device and no kernel: every worker begins alike,
in milliseconds.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import os
import select
import signal
import socket
import struct
import traceback
from collections.abc import Sequence
from typing import Any

from suite import frameworks
from suite.hardware.device import Device
from suite.worker.codec import from_json
from suite.worker.settle import settle

LENGTH = struct.Struct("!I")
"""Of a request, which is JSON: the environment and the working directory of the worker. The descriptors come with it,
in the order of OPTIONS; that of its output follows."""
OPTIONS = ("--requests", "--events", "--stacks", "--lifeline")
EVENT = struct.Struct("!cii")
"""STARTED with the process id, REFUSED with an error number, or ENDED with the process id and the exit status."""
STARTED, REFUSED, ENDED = b"s", b"r", b"e"


def import_suite(device: Device) -> None:
    """What a process needs that checks and times: torch takes a second."""
    gc.disable()  # torch's million objects stay: collections would find nothing
    with contextlib.suppress(Exception):  # the first request raises it again, and its reply has the reason
        import suite.checking.check
        import suite.timing
        import suite.worker.remote
        import suite.worker.server
        import suite.worker.shared_memory

        if device.type == "cpu":
            suite.timing.target.unrelated_memory()
    gc.enable()
    gc.freeze()


def keep_only(descriptors: Sequence[int]) -> None:
    """Close all other descriptors but those of the standard streams."""
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2 and int(name) not in descriptors:
            with contextlib.suppress(OSError):  # that of the folder itself
                os.close(int(name))


def begin(descriptors: Sequence[int], output: int) -> None:
    """In a forked process: a session of its own, these descriptors, and no output but to `output`."""
    os.setsid()
    os.dup2(output, 1)
    os.dup2(output, 2)
    keep_only(descriptors)


def _work(device: Device, request: dict[str, Any], descriptors: Sequence[int]) -> None:
    """The life of a worker, from its session on."""
    from suite.worker import server

    with contextlib.suppress(OSError):  # a folder that was removed meanwhile
        os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    requests, events, stacks, lifeline = descriptors
    settle(stacks, lifeline)
    server.run(device, requests, events)


class Forks:
    """Forks a worker for each request on `control`, and tells how workers end."""

    def __init__(self, device: Device, control: socket.socket) -> None:
        self.device, self.control = device, control
        self.workers: set[int] = set()

    def serve(self) -> None:
        """Until `control` ends."""
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
        answer, ready = os.pipe()
        try:
            worker = os.fork()
        except OSError as error:
            self.control.sendall(EVENT.pack(REFUSED, error.errno or 0, 0))
        else:
            if worker == 0:
                self._be_worker(request, descriptors, ready)
            os.close(ready)
            os.read(answer, 1)  # it has its session
            ready = -1
            self.workers.add(worker)
            self.control.sendall(EVENT.pack(STARTED, worker, 0))
        for each in (answer, ready, *descriptors):
            if each >= 0:
                os.close(each)
        return True

    def _be_worker(self, request: dict[str, Any], descriptors: list[int], ready: int) -> None:
        """Does not return."""
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            *ends, output = descriptors
            begin([*ends, ready], output)
            os.write(ready, b"r")
            os.close(ready)
            _work(self.device, request, ends)
        except SystemExit:
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)


def main() -> None:
    parser = argparse.ArgumentParser(description="Internal: started by suite/worker/fork_server.py.")
    parser.add_argument("--device", required=True)
    for name in ("--control", "--stacks", "--lifeline"):
        parser.add_argument(name, type=int, required=True)
    arguments = parser.parse_args()
    control = socket.socket(fileno=arguments.control)
    settle(arguments.stacks, arguments.lifeline)
    device = from_json(Device, json.loads(arguments.device), "--device")
    for name in frameworks.names():
        frameworks.get(name).prepare(device)
    import_suite(device)
    Forks(device, control).serve()


if __name__ == "__main__":
    main()
