"""The worker process: `process.py` starts it as `python -m suite.worker.server`. It alone imports frameworks, runs
kernels and judges them.

Requests and events (`protocol.py`) have two pipes of their own, so that a kernel that prints disturbs nothing.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import os
import traceback
from typing import BinaryIO

from suite import frameworks
from suite.hardware.device import Device
from suite.implementations import failure
from suite.worker.codec import ProtocolError, from_json
from suite.worker.protocol import (
    Done,
    Event,
    Failed,
    Ready,
    Reply,
    Request,
    TimeGuestRequest,
    TimeRequest,
    TimingFailed,
    decode_numbered,
    encode_numbered,
)
from suite.worker.session import Session
from suite.worker.settle import settle

getpid, leave = os.getpid, os._exit  # before a kernel can replace them


def serve(device: Device, requests: BinaryIO, events: BinaryIO) -> None:
    """Answer one request a line until `requests` ends. A process that a kernel forks neither reads nor answers."""
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
    for name in frameworks.names():
        frameworks.get(name).prepare(device)
    gc.disable()  # torch's million objects stay: collections would find nothing
    with contextlib.suppress(Exception):  # the first request raises it again, and replies with the reason
        import torch  # noqa: F401 (takes seconds, which belong to no implementation)
    gc.enable()
    send(Ready())
    session: Session | None = None
    for line in requests:
        number, request = decode_numbered(line)
        if not isinstance(request, Request):
            raise ProtocolError(f"{type(request).__name__} is no request")
        try:
            session = session or Session(device, send)
            reply = session.handle(request)
        except Exception as error:  # one implementation's failure is one row
            traceback.print_exc()
            reply = session.failed(request, error) if session else _not_started(request, error, device)
        send(Done(reply))


def _not_started(request: Request, error: Exception, device: Device) -> Reply:
    """The reply where torch cannot be imported, or does not find the device."""
    reason = failure.describe(error, device.type)
    return (
        TimingFailed("error", reason, None)
        if isinstance(request, TimeRequest | TimeGuestRequest)
        else Failed(reason, None)
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="Internal: started by suite/worker/process.py.")
    parser.add_argument("--device", required=True)
    parser.add_argument("--requests", type=int, required=True)
    parser.add_argument("--events", type=int, required=True)
    parser.add_argument("--stacks", type=int, required=True)
    parser.add_argument("--lifeline", type=int, required=True)
    arguments = parser.parse_args()
    for descriptor in (arguments.requests, arguments.events):
        os.set_inheritable(descriptor, False)
    settle(arguments.stacks, arguments.lifeline)
    device = from_json(Device, json.loads(arguments.device), "--device")
    with os.fdopen(arguments.requests, "rb") as requests, os.fdopen(arguments.events, "wb") as events:
        serve(device, requests, events)


if __name__ == "__main__":
    main()
