"""The order of copies, meetings and kernels on the streams of a GPU, recorded without one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from cuda_ref._runtime import symmetric
from cuda_ref._runtime.symmetric import HEADER, Workspace, all_reduce_during, as_they_arrive

RANKS, RANK = 4, 1


class Streams(TorchDispatchMode):
    """Records (stream, action) in place of CUDA: waits for events, copies, meetings and calls."""

    def __init__(self) -> None:
        super().__init__()
        self.done: list[tuple[str, str]] = []
        self.copied: list[torch.Tensor] = []
        self.now = "current"

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function is torch.ops.aten.copy_.default:
            self.record("copy")
            self.copied.append(args[0])
        return function(*args, **(kwargs or {}))

    def record(self, action: str) -> None:
        self.done.append((self.now, action))

    @contextmanager
    def stream(self, stream: Stream) -> Iterator[None]:
        before, self.now = self.now, stream.name
        yield
        self.now = before


class Stream:
    def __init__(self, name: str, streams: Streams) -> None:
        self.name, self.streams = name, streams

    def wait_stream(self, other: Stream) -> None:
        self.streams.done.append((self.name, f"wait for {other.name}"))

    def record_event(self) -> tuple[str, int]:
        return self.name, len(self.streams.done) - 1

    def wait_event(self, event: tuple[str, int]) -> None:
        stream, place = event
        assert self.streams.done[place][0] == stream
        self.streams.done.append((self.name, f"wait for {self.streams.done[place][1]} of {stream}"))


class Group:
    group_name = "four"
    size, rank = staticmethod(lambda: RANKS), staticmethod(lambda: RANK)


@pytest.fixture
def streams(monkeypatch: pytest.MonkeyPatch) -> Streams:
    streams = Streams()
    current, copies, side = (Stream(name, streams) for name in ("current", "copies", "side"))

    def made(group: Any, device: torch.device, data_bytes: int, use: str) -> Workspace:
        views = tuple(torch.empty(HEADER + 2**16, dtype=torch.uint8, device=device) for _ in range(RANKS))
        return Workspace(views[0], RANK, RANKS, 2**16, views, lambda: streams.record("meet"))

    monkeypatch.setattr(symmetric, "workspace", made)
    monkeypatch.setattr(symmetric, "_streams", lambda device: (copies, side))
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: current)
    monkeypatch.setattr(torch.cuda, "stream", streams.stream)
    return streams


def recorded(streams: Streams, *, chained: bool) -> list[tuple[str, str]]:
    xs = [torch.empty(3, 5, dtype=torch.bfloat16, device="meta") for _ in range(2)]

    def use(rank: int, *given: torch.Tensor) -> None:
        assert [(x.shape, x.dtype) for x in given] == [(x.shape, x.dtype) for x in xs]
        streams.record(f"use {rank}")

    with streams:
        as_they_arrive(xs, use, Group, chained=chained)  # type: ignore[arg-type]
    return streams.done


@pytest.mark.parametrize("chained", [False, True])
def test_no_kernel_stands_before_a_copy(streams: Streams, chained: bool) -> None:
    """A persistent kernel would hold back a kernel on the stream of the copies, and with it the copies after it."""
    done = recorded(streams, chained=chained)
    assert [action for stream, action in done if stream == "copies"] == [
        "wait for current", *["copy"] * 2 * (RANKS - 1), "wait for current"
    ]  # fmt: skip
    assert done.index(("current", "use 1")) > max(i for i, each in enumerate(done) if each[1] == "copy")


@pytest.mark.parametrize("chained", [False, True])
def test_each_use_waits_for_its_copy_and_for_the_other_ranks(streams: Streams, chained: bool) -> None:
    done = recorded(streams, chained=chained)
    uses = [(stream, action) for stream, action in done if action.startswith("use")]
    assert [action for _, action in uses] == ["use 1", "use 2", "use 3", "use 0"]
    assert [stream for stream, _ in uses] == ["current", *["current" if chained else "side", "current"] * 2][:RANKS]
    for step, (stream, action) in enumerate(uses[1:]):
        before = [each for where, each in done[: done.index((stream, action))] if where == stream]
        earlier = [] if step == 0 else [f"wait for meet of {uses[step][0]}"]
        assert before[-2 - len(earlier) :] == ["wait for copy of copies", *earlier, "meet"]
    assert done[-2:] == [("current", "wait for side"), ("copies", "wait for current")]


def test_sums_hide_copies_behind_both_halves_of_a_product(streams: Streams) -> None:
    """No kernel on the stream of the copies: behind a persistent product it would hold them back."""
    xs = [torch.empty(1000, device="meta"), torch.empty(0, device="meta")]
    with streams:
        sums = all_reduce_during(
            xs,
            lambda parts, out: streams.record(f"add {len(parts)} x {out.numel()}"),
            lambda rows: streams.record(f"rows {rows.start} to {rows.stop}"),
            300,
            Group,  # type: ignore[arg-type]
        )
    assert [x.shape for x in sums] == [x.shape for x in xs]
    assert streams.done == [
        ("current", "wait for copies"),
        ("copies", "wait for current"),
        *[("copies", "copy")] * 2 * RANKS,
        ("current", "rows 0 to 256"),
        ("current", "wait for copy of copies"),
        ("current", "meet"),
        ("current", f"add {RANKS} x 256"),
        ("current", f"add {RANKS} x 0"),
        ("current", "meet"),
        ("copies", "wait for meet of current"),
        *[("copies", "copy")] * 2 * RANKS,
        ("current", "rows 256 to 300"),
        ("current", "wait for copies"),
    ]


def test_ranks_begin_to_send_to_different_ranks(streams: Streams) -> None:
    """A rank to which all others send at once receives each at a part of the rate."""
    x = torch.empty(1000, device="meta")
    with streams:
        all_reduce_during([x], lambda parts, out: None, lambda rows: None, 300, Group)  # type: ignore[arg-type]
    sent, fetched = streams.copied[:RANKS], streams.copied[RANKS:]
    last = 1000 - 3 * 256  # of the last rank's share
    assert [each.numel() for each in sent] == [256, last, 256, 256]  # to ranks 2, 3, 0, 1
    assert [each.storage_offset() for each in fetched] == [512, 768, 0, 256]
