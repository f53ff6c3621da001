"""The socket between the worker and an external process: what is signed arrives, and nothing else is accepted."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator

import pytest

from suite.external import protocol as p
from suite.external.channel import EXTERNAL, HEADER, KEY_BYTES, MAC_BYTES, WORKER, Channel, ClosedError, ForgedError

KEY = bytes(range(KEY_BYTES))


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    ours.settimeout(1.0)
    with ours, theirs:
        yield ours, theirs


def channels(ends: tuple[socket.socket, socket.socket]) -> tuple[Channel, Channel]:
    return Channel(ends[0], KEY, WORKER), Channel(ends[1], KEY, EXTERNAL)


def test_messages_arrive_with_the_descriptors_that_were_sent(ends: tuple[socket.socket, socket.socket]) -> None:
    worker, external = channels(ends)
    descriptor = os.memfd_create("test")
    os.write(descriptor, b"bytes")
    worker.send(p.Bind("torch"), [descriptor])
    worker.send(p.Collect())
    message, (received,) = external.receive(p.Command)
    assert message == p.Bind("torch")
    assert os.pread(received, 10, 0) == b"bytes"
    assert external.spin(1_000_000)
    assert external.receive(p.Command) == (p.Collect(), [])
    assert not external.spin(1_000)
    external.send(p.Ran(1, 2))
    assert worker.receive(p.Answer) == (p.Ran(1, 2), [])
    for each in (descriptor, received):
        os.close(each)


def frame(data: bytes, mac: bytes = bytes(MAC_BYTES)) -> bytes:
    return HEADER.pack(len(data)) + mac + data


FORGED = {
    "unsigned": frame(b'{"class": "Finished"}'),
    "no frame": b'{"event": "done", "status": "ok"}\n' * 4,
    "a huge length": b"\xff" * 64,
    "half a frame": frame(b"{}")[:-1],
}


@pytest.mark.parametrize("data", FORGED.values(), ids=FORGED)
def test_what_is_not_signed_is_refused(data: bytes, ends: tuple[socket.socket, socket.socket]) -> None:
    worker, _ = channels(ends)
    ends[0].settimeout(0.05)
    ends[1].sendall(data)
    with pytest.raises(ForgedError, match="something other than the suite answered in its place"):
        worker.receive(p.Answer)


def test_a_frame_is_good_once(ends: tuple[socket.socket, socket.socket]) -> None:
    worker, external = channels(ends)
    external.send(p.Finished())
    sent = ends[0].recv(4096)
    ends[1].sendall(sent + sent)
    assert worker.receive(p.Answer) == (p.Finished(), [])
    with pytest.raises(ForgedError):
        worker.receive(p.Answer)


def test_a_frame_is_good_in_one_direction(ends: tuple[socket.socket, socket.socket]) -> None:
    _, external = channels(ends)
    external.send(p.Finished())
    ends[0].sendall(ends[0].recv(4096))
    with pytest.raises(ForgedError):
        external.receive(p.Answer)


def test_a_signed_message_of_another_kind_is_refused(ends: tuple[socket.socket, socket.socket]) -> None:
    worker, external = channels(ends)
    external.send(p.Bind("torch"))
    with pytest.raises(ForgedError):
        worker.receive(p.Answer)


def test_the_end_of_the_other_side_is_told(ends: tuple[socket.socket, socket.socket]) -> None:
    worker, external = channels(ends)
    external.close()
    with pytest.raises(ClosedError):
        worker.receive(p.Answer)


def test_a_forked_process_has_no_channel(ends: tuple[socket.socket, socket.socket]) -> None:
    worker, external = channels(ends)
    child = os.fork()
    if child == 0:
        try:
            external.send(p.Finished())  # ends the process
        finally:
            os._exit(9)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    external.send(p.Ran(3, 4))
    assert worker.receive(p.Answer) == (p.Ran(3, 4), []), "of this process"
