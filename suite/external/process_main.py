"""Runs an external process, from its fork to its end."""

from __future__ import annotations

import contextlib
import fcntl
import gc
import os
import random
import socket
from collections.abc import Sequence

from suite.external import protocol as p
from suite.external.channel import EXTERNAL, KEY_BYTES, Channel, ClosedError
from suite.external.session import ExternalSession
from suite.external.settings import seed_from_system
from suite.hardware.device import Device
from suite.implementations import failure
from suite.processes.startup import set_up

DESCRIPTORS = range(300, 900)
"""The socket moves to a random descriptor among these."""
GC_THRESHOLD = 2**31 - 1
"""Objects allocated before Python's garbage collector runs."""


def run(device: Device, descriptors: Sequence[int]) -> None:
    """Answer commands until the worker closes the socket.

    `descriptors` are those of `fork_server_main.OPTIONS`, then that of the output.
    """
    os.setsid()
    channel_end, stacks, lifeline_end, output = descriptors
    os.dup2(output, 2)
    os.close(output)
    connection = socket.socket(fileno=_move(channel_end))
    lifeline = set_up(stacks, lifeline_end)
    channel = Channel(connection, connection.recv(KEY_BYTES, socket.MSG_WAITALL), EXTERNAL)
    seed_from_system()
    gc.set_threshold(GC_THRESHOLD)  # as while calls are timed, so that a file cannot recognize timing by this setting
    try:
        session = ExternalSession(device, channel)
    except Exception as error:
        channel.send(p.Raised("error", failure.describe(error, device.type)))
        return
    channel.send(p.Ready(lifeline))
    with contextlib.suppress(ClosedError):
        session.serve()


def _move(descriptor: int) -> int:
    """Move a descriptor to a random high number that other programs do not inherit."""
    moved = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, random.SystemRandom().choice(DESCRIPTORS))
    os.close(descriptor)
    return moved
