"""Inside a process that takes cases for one device: `python -m suite.cluster.device_main`."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING

from suite.cluster.messages import Doing, Finished, Setup, Stored, Task, decode, encode
from suite.hardware.device import resolve
from suite.processes.startup import set_up
from suite.worker import fork_server
from suite.worker.process import environment

if TYPE_CHECKING:
    from suite.cluster.session import Session


def serve(tasks: int, events: int) -> None:
    """Run one task a line, after a first line with the setup, until the pipe `tasks` ends."""
    for descriptor in (tasks, events):
        os.set_inheritable(descriptor, False)
    with os.fdopen(tasks, "rb") as lines, os.fdopen(events, "wb") as answers:

        def send(message: Doing | Stored | Finished) -> None:
            answers.write(encode(message).encode() + b"\n")
            answers.flush()

        setup = decode(next(lines))
        assert isinstance(setup, Setup)
        with _session(setup) as session:
            for line in lines:
                task = decode(line)
                assert isinstance(task, Task)
                send(session.run(task, send))


def _session(setup: Setup) -> Session:
    """The session, with a fork server. On a GPU, the server imports torch at the same time as this process.

    On a CPU, whose cores are shared by all processes, the server is a fork of this process.
    """
    device = resolve(setup.options.device.type)
    variables = environment(device, {})
    if device.type == "cuda":
        fork_server.begin(device, variables)
    from suite.cluster.session import Session  # imports torch

    if device.type == "cpu":
        fork_server.begin_here(device, variables)
    return Session(setup)


def main() -> None:
    parser = argparse.ArgumentParser(description="Internal: started by suite/cluster/device_process.py.")
    parser.add_argument("--device", required=True)
    for name in ("--tasks", "--events", "--stacks", "--lifeline"):
        parser.add_argument(name, type=int, required=True)
    arguments = parser.parse_args()
    set_up(arguments.stacks, arguments.lifeline)
    serve(arguments.tasks, arguments.events)


if __name__ == "__main__":
    main()
