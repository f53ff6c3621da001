"""The socket between the worker and an external process: typed messages, numbered and signed against forgery.

A frame is the length of the message, its signature and its JSON. The signature is a keyed hash of the direction, the
number of the frame and the JSON. The external process gets the key before it loads a user's file; afterwards it holds
only the keyed hash object.
"""

from __future__ import annotations

import hashlib
import json
import os
import select
import socket
import struct
from collections.abc import Callable, Sequence
from hmac import compare_digest
from time import perf_counter_ns  # bound before any user's file can replace it
from typing import Any

from suite.core.errors import WorkerError
from suite.processes.codec import ProtocolError, from_json, to_json

KEY_BYTES, MAC_BYTES = 32, 16
MAX_MESSAGE = 1 << 28
MAX_DESCRIPTORS = 64
WORKER, EXTERNAL = b"worker", b"external"
"""The two sides."""
HEADER = struct.Struct("!I")

getpid, leave = os.getpid, os._exit  # bound before a user's file can replace them


class ForgedError(WorkerError):
    """A frame that the other side did not send."""

    def __init__(self) -> None:
        super().__init__("something other than the suite answered in its place; its process was stopped")


class ClosedError(WorkerError):
    """The other side has closed the socket."""


class Channel:
    """One side of a connected socket. Both sides know `key`; `side` is WORKER or EXTERNAL.

    A process forked from this one has no channel: using it ends that process.
    """

    def __init__(self, connection: socket.socket, key: bytes, side: bytes) -> None:
        self._socket = connection
        self._sign = _signer(key, side)
        self._verify = _signer(key, EXTERNAL if side == WORKER else WORKER)
        self._sent = self._received = 0
        self._own = getpid()
        self._poll = select.poll()
        self._poll.register(connection, select.POLLIN)
        os.register_at_fork(after_in_child=connection.close)

    def fileno(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        self._socket.close()

    def send(self, message: Any, descriptors: Sequence[int] = ()) -> None:
        """Send a dataclass, with open file descriptors for the other process."""
        if getpid() != self._own:
            leave(0)
        data = json.dumps(to_json(message)).encode()
        self._sent += 1
        header = HEADER.pack(len(data)) + self._sign(self._sent, data)
        try:
            if descriptors:
                socket.send_fds(self._socket, [header], list(descriptors))
                self._socket.sendall(data)
            else:
                self._socket.sendall(header + data)
        except (BrokenPipeError, ConnectionResetError) as error:
            raise ClosedError(str(error)) from error

    def spin(self, spin_ns: int) -> bool:
        """Poll for a message for `spin_ns` nanoseconds without sleeping. Returns True as soon as there is one."""
        end = perf_counter_ns() + spin_ns
        while not self._poll.poll(0):
            if perf_counter_ns() >= end:
                return False
        return True

    def receive(self, expected: Any) -> tuple[Any, list[int]]:
        """The next message, which has the annotation `expected`, and the descriptors that came with it.

        Raises `ForgedError` for a frame without a valid signature, `ClosedError` at the end of the socket.
        """
        if getpid() != self._own:
            leave(0)
        header, descriptors = self._header()
        length = HEADER.unpack(header[: HEADER.size])[0]
        if length > MAX_MESSAGE:
            raise ForgedError
        data = self._exactly(length)
        self._received += 1
        if not compare_digest(header[HEADER.size :], self._verify(self._received, data)):
            raise ForgedError
        try:
            return from_json(expected, json.loads(data)), descriptors
        except (ValueError, RecursionError, ProtocolError) as error:
            raise ForgedError from error

    def _header(self) -> tuple[bytes, list[int]]:
        size = HEADER.size + MAC_BYTES
        try:
            data, descriptors, _, _ = socket.recv_fds(self._socket, size, MAX_DESCRIPTORS)
        except ConnectionResetError as error:
            raise ClosedError(str(error)) from error
        if not data:
            raise ClosedError("the socket was closed")
        return data + self._exactly(size - len(data)), list(descriptors)

    def _exactly(self, count: int) -> bytes:
        parts = []
        while count:
            try:
                part = self._socket.recv(min(count, 1 << 20))
            except TimeoutError as error:
                raise ForgedError from error  # a frame is sent as a whole
            except ConnectionResetError as error:
                raise ClosedError(str(error)) from error
            if not part:
                raise ClosedError("the socket was closed")
            parts.append(part)
            count -= len(part)
        return b"".join(parts)


def _signer(key: bytes, side: bytes) -> Callable[[int, bytes], bytes]:
    keyed = hashlib.blake2b(key=key, person=side, digest_size=MAC_BYTES)

    def sign(number: int, data: bytes) -> bytes:
        mac = keyed.copy()
        mac.update(number.to_bytes(8, "big") + data)
        return mac.digest()

    return sign
