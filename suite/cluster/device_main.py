"""Inside a process that takes cases for one device: `python -m suite.cluster.device_main`."""

from __future__ import annotations

import argparse
import os

from suite.cluster.messages import Doing, Finished, Setup, Stored, Task, decode, encode
from suite.cluster.session import Session
from suite.hardware.device import resolve
from suite.processes.startup import set_up
from suite.worker import fork_server
from suite.worker.process import environment


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
        if setup.options.device.type == "cpu":
            device = resolve("cpu")
            fork_server.begin_here(device, environment(device, {}))
        with Session(setup) as session:
            for line in lines:
                task = decode(line)
                assert isinstance(task, Task)
                send(session.run(task, send))


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
