"""Checks kernels that overlap on two streams, and kernels that a CUDA graph launches."""

from __future__ import annotations

from functools import partial

from suite.doctor.timer_proof.checks import Check
from suite.doctor.timer_proof.expectations import requires_overlap, times
from suite.doctor.timer_proof.groups.group import Group, Spins
from suite.doctor.timer_proof.work import Arena
from suite.timing import Call


def two_streams(arena: Arena, spins: Spins) -> Group:
    """A short spin during a long one takes no additional time."""
    import torch

    side = torch.cuda.Stream(arena.device)
    short, long = spins.cycles(300), spins.cycles(1000)

    def issue() -> None:
        torch.cuda._sleep(long)
        with torch.cuda.stream(side):
            torch.cuda._sleep(short)

    alone, both = "torch: the longer alone", "torch: two streams"
    return Group(
        (Call(alone, partial(torch.cuda._sleep, long), arena.wait), Call(both, issue, arena.wait)),
        (
            Check(
                "torch",
                "a spin of 300 us during one of 1000 us, on two streams",
                both,
                times(1, alone),
                "the longer alone",
                activities={"kernel": 2},
                requirement=requires_overlap(250),
            ),
        ),
    )


def graph(arena: Arena, spins: Spins) -> Group:
    """The kernels of a graph count like kernels that are launched one by one."""
    import torch

    count, many = spins.cycles(100), 10
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured, capture_error_mode="thread_local"):  # other frameworks have threads of their own
        for _ in range(many):
            torch.cuda._sleep(count)
    one, replay = "torch: 100 us", "torch: graph"
    return Group(
        (Call(one, partial(torch.cuda._sleep, count), arena.wait), Call(replay, captured.replay, arena.wait)),
        (
            Check(
                "torch",
                f"a graph of {many} spins of 100 us",
                replay,
                times(many, one),
                f"{many} times one of them",
                activities={"kernel": many},
            ),
        ),
    )
