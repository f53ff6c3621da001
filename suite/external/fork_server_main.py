"""The process from which guests are forked, and the beginning of a guest: `nursery.py` starts it as
`python -m suite.worker.guest`.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import gc
import json
import os
import random
import socket
import traceback
from collections.abc import Mapping, Sequence
from typing import NoReturn

from suite import frameworks
from suite.hardware.device import Device
from suite.implementations import failure
from suite.worker import guest_protocol as p
from suite.worker.channel import GUEST, KEY_BYTES, Channel, ClosedError, leave
from suite.worker.codec import from_json
from suite.worker.forking import begin, import_suite
from suite.worker.guest_session import GuestSession
from suite.worker.nursery import OPTIONS, PID
from suite.worker.settle import settle

DESCRIPTORS = range(300, 900)
"""Where the socket's descriptor is moved, at random."""
NEVER = 2**31 - 1
"""Objects allocated before Python's garbage collector runs."""


def _move(descriptor: int) -> int:
    """The descriptor under a random high number, not inherited by other programs."""
    moved = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, random.SystemRandom().choice(DESCRIPTORS))
    os.close(descriptor)
    return moved


def run(device: Device, descriptors: Sequence[int]) -> None:
    """The life of a guest, from its fork on, with the descriptors of `nursery.OPTIONS` and that of its output."""
    os.setsid()
    channel_end, stacks, lifeline_end, output = descriptors
    os.dup2(output, 2)
    os.close(output)
    connection = socket.socket(fileno=_move(channel_end))
    lifeline = settle(stacks, lifeline_end)
    channel = Channel(connection, connection.recv(KEY_BYTES, socket.MSG_WAITALL), GUEST)
    gc.set_threshold(NEVER)  # as while calls are timed: the file shall not see a difference
    try:
        guest = GuestSession(device, channel)
    except Exception as error:
        channel.send(p.Raised("error", failure.describe(error, device.type)))
        return
    channel.send(p.Settled(lifeline))
    with contextlib.suppress(ClosedError):
        guest.serve()


def fork_on_request(device: Device, control: socket.socket, stacks: int) -> None:
    """Fork a guest for each message on `control`, and answer with its process id."""
    while True:
        message, descriptors, _, _ = socket.recv_fds(control, 1, len(OPTIONS) + 1)
        if not message:
            return
        answer, pid_end = os.pipe()
        parent = os.fork()
        if parent == 0:
            guest = os.fork()
            if guest:
                os.write(pid_end, PID.pack(guest))
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


def begin_nursery(device: Device, ends: Mapping[str, int], output: int, ready: int) -> NoReturn:
    """The life of a nursery that was forked from a worker, which has run no kernel yet. Closes `ready` when it has
    closed what belongs to the worker."""
    try:
        begin([*ends.values(), ready], output)
        os.close(ready)
        _nurse(device, ends["--control"], ends["--stacks"], ends["--lifeline"])
    except BaseException:
        traceback.print_exc()
    leave(0)


def _nurse(device: Device, control: int, stacks: int, lifeline: int) -> None:
    connection = socket.socket(fileno=control)
    settle(stacks, lifeline)
    for name in frameworks.names():
        frameworks.get(name).prepare(device)
    import_suite(device)
    fork_on_request(device, connection, stacks)


def main() -> None:
    parser = argparse.ArgumentParser(description="Internal: started by suite/worker/nursery.py.")
    parser.add_argument("--device", required=True)
    for name in ("--control", "--stacks", "--lifeline"):
        parser.add_argument(name, type=int, required=True)
    arguments = parser.parse_args()
    device = from_json(Device, json.loads(arguments.device), "--device")
    _nurse(device, arguments.control, arguments.stacks, arguments.lifeline)


if __name__ == "__main__":
    main()
