"""Inside a worker, a fork of the fork server: it runs the kernels of the tree and judges all results.

Requests and events (`protocol.py`) have two pipes of their own, which prints of a kernel do not reach.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable
from typing import BinaryIO

from suite import frameworks
from suite.external.fork_server import ExternalForkServer
from suite.hardware.device import Device
from suite.implementations import failure
from suite.processes.codec import ProtocolError
from suite.worker.protocol import (
    Done,
    Event,
    Failed,
    Ready,
    Reply,
    Request,
    Started,
    TimeExternalRequest,
    TimeRequest,
    TimingFailed,
    decode_numbered,
    encode_numbered,
)
from suite.worker.session import Session

getpid, leave = os.getpid, os._exit  # bound before a kernel can replace them


def serve(
    device: Device, requests: BinaryIO, events: BinaryIO, make_session: Callable[[Callable[[Started], None]], Session]
) -> None:
    """Answer one request a line until `requests` ends. A process that a kernel forks neither reads nor answers.

    `make_session` is called with the function that sends events, once the first request has come.
    """
    own, number = getpid(), 0

    def close_in_child() -> None:
        for pipe in (requests, events):
            os.close(pipe.fileno())

    def send(event: Event) -> None:
        if getpid() != own:
            leave(0)
        events.write(encode_numbered(event, number))
        events.flush()

    os.register_at_fork(after_in_child=close_in_child)
    send(Ready())
    session: Session | None = None
    for line in requests:
        number, request = decode_numbered(line)
        if not isinstance(request, Request):
            raise ProtocolError(f"{type(request).__name__} is no request")
        try:
            session = session or make_session(send)
            reply = session.handle(request)
        except Exception as error:  # a failure of one implementation costs one row
            traceback.print_exc()
            reply = session.failed(request, error) if session else _not_started(request, error, device)
        send(Done(reply))


def _not_started(request: Request, error: Exception, device: Device) -> Reply:
    """The reply of a worker that cannot import torch, or where torch does not find the device."""
    reason = failure.describe(error, device.type)
    return (
        TimingFailed("error", reason, None)
        if isinstance(request, TimeRequest | TimeExternalRequest)
        else Failed(reason, None)
    )


def run(device: Device, requests_end: int, events_end: int) -> None:
    """Answer requests until the parent closes their pipe.

    The fork server of external processes is forked before this process runs a kernel.
    """
    for descriptor in (requests_end, events_end):
        os.set_inheritable(descriptor, False)
    for name in frameworks.names():
        frameworks.get(name).prepare(device)
    fork_server = ExternalForkServer(device, fork_here=True)
    with os.fdopen(requests_end, "rb") as requests, os.fdopen(events_end, "wb") as events:
        serve(device, requests, events, lambda send: Session(device, send, fork_server))
