"""Measures the overhead of recording: the time that it adds to the wall time of a sample."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from suite.doctor.timer_proof.checks import OFF, OK, ProofRow
from suite.timing import median
from suite.timing.recorder import Recorder
from suite.timing.sampling import COLLECT_PERIOD_NS
from suite.timing.target import Target

MAX_OVERHEAD = 0.10
"""Largest allowed overhead, relative to the wall time of an unrecorded sample."""
TURNS = 20
"""Unrecorded and recorded samples alternate. A turn has the samples of one delivery of records."""
UNTIMED = 20
"""Samples before each turn whose time does not count: the first recorded ones also set up tracing."""


class Turn(NamedTuple):
    """The samples of one turn."""

    us: float
    """Mean wall time of a sample, with the delivery and conversion of the records."""
    delivery_us: float
    """The part of it that the delivery takes."""
    samples: int


def overhead_row(target: Target, work: Callable[[], None], what: str) -> ProofRow:
    """Compare the wall time of recorded and unrecorded samples: evict, synchronize, `work`, synchronize.

    Other programs of the host delay single turns. The overhead is therefore the median over the half of the turns that
    took the least time, unrecorded and recorded together. The row shows `what` as the description of `work`.
    """

    def unrecorded() -> None:
        target.evict()
        target.synchronize()
        work()
        target.synchronize()

    turns: list[tuple[Turn, Turn]] = []
    for number in range(TURNS):
        if number % 2:  # the order alternates, so that a slow drift of clocks cancels
            recorded = _recorded(target, work, what)
            turns.append((_turn(target, unrecorded), recorded))
        else:
            turns.append((_turn(target, unrecorded), _recorded(target, work, what)))
    quiet = sorted(turns, key=lambda turn: turn[0].us + turn[1].us)[: TURNS // 2]
    ratio = median([recorded.us / plain.us for plain, recorded in quiet])
    expected = median([plain.us for plain, _ in quiet])
    delivery = median([recorded.delivery_us for _, recorded in quiet])
    return ProofRow(
        framework="torch",
        work=f"the wall time of a sample of {what}, recorded",
        recorded_us=ratio * expected,
        expected_us=expected,
        ratio=ratio,
        low_us=(1.0 - MAX_OVERHEAD) * expected,
        high_us=(1.0 + MAX_OVERHEAD) * expected,
        verdict=OK if abs(ratio - 1.0) <= MAX_OVERHEAD else OFF,
        because=f"the same, not recorded, in turn; the quieter half of {TURNS} turns; {MAX_OVERHEAD:.0%}",
        samples=sum(recorded.samples for _, recorded in quiet),
        note=f"{delivery:.1f} us of it the delivery of records",
    )


def _recorded(target: Target, work: Callable[[], None], what: str) -> Turn:
    recorder = target.recorder()
    recorder.start()
    try:
        recorder.serialize_kernels()
        return _turn(target, partial(recorder.sample, what, target.evict, work), recorder)
    finally:
        recorder.stop()


def _turn(target: Target, sample: Callable[[], None], recorder: Recorder | None = None) -> Turn:
    """Take samples for the time between two deliveries in `Measurement.rounds`, then deliver their records."""
    for _ in range(UNTIMED):
        sample()
    if recorder is not None:
        recorder.collect()
    begin = now = target.clock()
    count = 0
    while now - begin < COLLECT_PERIOD_NS:
        sample()
        count += 1
        now = target.clock()
    if recorder is not None:
        recorder.collect()
    end = target.clock()
    return Turn((end - begin) / count / 1000, (end - now) / count / 1000, count)
