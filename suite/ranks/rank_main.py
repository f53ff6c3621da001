"""Inside a rank, a fork of the launcher: joins the process group, then answers requests as a worker does."""

from __future__ import annotations

import faulthandler
import os
import signal
import socket
from collections.abc import Callable, Sequence
from dataclasses import replace

from suite.core.phases import Started
from suite.hardware.device import Device
from suite.ranks.group import host_group
from suite.ranks.session import RankSession
from suite.worker.process_main import serve

BACKENDS = {"cpu": "gloo", "cuda": "cpu:gloo,cuda:nccl"}


def run(device: Device, channels: Sequence[int], stacks: Sequence[int]) -> None:
    """Answer the requests of this rank's channel until the parent closes it. Does not return."""
    rank = int(os.environ["RANK"])
    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, signal.SIG_DFL)  # the agent's handlers would not end a rank that hangs in a library
    faulthandler.enable(stacks[rank], all_threads=False)
    faulthandler.register(signal.SIGUSR1, stacks[rank], all_threads=False)
    for other, (channel, stack) in enumerate(zip(channels, stacks, strict=True)):
        if other != rank:
            os.close(channel)
            os.close(stack)
    own = replace(device, index=rank) if device.type == "cuda" else device
    with socket.socket(fileno=channels[rank]) as connection:
        requests, events = connection.makefile("rb"), connection.makefile("wb")
        events.write(b"%d\n" % os.getpid())
        events.flush()
        serve(own, requests, events, lambda send: _joined(own, send))
    os._exit(0)


def _joined(device: Device, send: Callable[[Started], None]) -> RankSession:
    """The session of this rank, once all ranks have joined the process group. An error here becomes a reply."""
    import torch
    import torch.distributed as dist

    if device.type == "cuda":
        torch.cuda.set_device(device.index)
    dist.init_process_group(BACKENDS[device.type])
    host_group()
    return RankSession(device, send)
