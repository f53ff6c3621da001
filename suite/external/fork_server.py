"""The worker's side of the process from which external processes are forked in milliseconds.

It has imported torch and runs no user's file, so that every external process begins alike.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from functools import partial

from suite.external import fork_server_main
from suite.external.fork_server_main import OPTIONS, PID
from suite.hardware.device import Device
from suite.processes import tree
from suite.processes.child import KILL_S, Child, spawn
from suite.processes.forked import ForkedProcess, forked

START_S = 600.0


class ExternalForkServer(Child):
    """`fork_here` starts it as a fork of this process, which must have run no kernel yet.

    Otherwise it is a new process, whose first fork takes some seconds.
    """

    def __init__(self, device: Device, *, fork_here: bool = False) -> None:
        tree.adopt_orphans()
        self._control, theirs = socket.socketpair()
        begin = partial(fork_server_main.begin, device)
        start = forked(begin) if fork_here else spawn("suite.external.fork_server_main", device, os.environ)
        super().__init__(start, {"--control": theirs.detach()})

    def fork(self, ends: Mapping[str, int], output: int) -> ForkedProcess:
        """An external process with the descriptors of OPTIONS; it becomes a child of this process.

        Raises `OSError` or `WorkerDiedError` if the fork server has ended.
        """
        socket.send_fds(self._control, [b"f"], [*(ends[name] for name in OPTIONS), output])
        self.wait_for(self._control.fileno(), START_S, self.clock() + START_S)
        answer = self._control.recv(PID.size, socket.MSG_WAITALL)
        if len(answer) < PID.size:
            raise self.death_error()
        return ForkedProcess(PID.unpack(answer)[0])

    def close(self, wait_s: float = KILL_S) -> None:
        super().close(wait_s)
        self._control.close()
