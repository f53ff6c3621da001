"""Inside the process from which external processes are forked: `python -m suite.external.fork_server_main`, or a fork
of the worker.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import struct
import traceback
from collections.abc import Mapping
from typing import NoReturn

from suite.external.channel import leave
from suite.external.process_main import run
from suite.hardware.device import Device
from suite.processes.codec import from_json
from suite.processes.preload import preload, share_eviction_memory
from suite.processes.startup import detach, set_up

PID = struct.Struct("!i")
"""An answer: the id of the new process."""
OPTIONS = ("--channel", "--stacks", "--lifeline")
"""Order of the descriptors in a request; the descriptor of the output follows."""


def begin(device: Device, ends: Mapping[str, int], output: int, ready: int) -> NoReturn:
    """Serve in a fork of a worker that has run no kernel yet.

    Closes `ready` once the worker's descriptors are closed.
    """
    try:
        detach([*ends.values(), ready], output)
        os.close(ready)
        _serve(device, ends["--control"], ends["--stacks"], ends["--lifeline"])
    except BaseException:
        traceback.print_exc()
    leave(0)


def _serve(device: Device, control: int, stacks: int, lifeline: int) -> None:
    connection = socket.socket(fileno=control)
    set_up(stacks, lifeline)
    preload(device, _import_others)
    _fork_on_request(device, connection, stacks)


def _import_others() -> None:
    from suite.external import shared_memory  # noqa: F401


def _fork_on_request(device: Device, control: socket.socket, stacks: int) -> None:
    """Fork an external process for each message on `control`, and answer with its process id.

    Its parent, a second fork, ends at once: the worker adopts the orphan.
    """
    while True:
        message, descriptors, _, _ = socket.recv_fds(control, 1, len(OPTIONS) + 1)
        if not message:
            return
        answer, pid_end = os.pipe()
        parent = os.fork()
        if parent == 0:
            child = os.fork()
            if child:
                os.write(pid_end, PID.pack(child))
            else:
                try:
                    for each in (control.detach(), stacks, answer, pid_end):
                        os.close(each)
                    run(device, descriptors)
                except BaseException:
                    traceback.print_exc()
            leave(0)
        for each in (pid_end, *descriptors):
            os.close(each)
        os.waitpid(parent, 0)
        control.sendall(os.read(answer, PID.size))
        os.close(answer)


def main() -> None:
    parser = argparse.ArgumentParser(description="Internal: started by suite/external/fork_server.py.")
    parser.add_argument("--device", required=True)
    for name in ("--control", "--stacks", "--lifeline"):
        parser.add_argument(name, type=int, required=True)
    arguments = parser.parse_args()
    device = from_json(Device, json.loads(arguments.device), "--device")
    share_eviction_memory(device)
    _serve(device, arguments.control, arguments.stacks, arguments.lifeline)


if __name__ == "__main__":
    main()
