"""What recording adds to the wall time of a sample."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from suite.doctor.timer_proof.checks import OFF, OK, Line
from suite.timing import median
from suite.timing.recorder import Recorder
from suite.timing.sampling import COLLECT_PERIOD_NS
from suite.timing.target import Target

MOST = 0.10
"""Of the wall time of a sample that is not recorded."""
TURNS, SAMPLES = 7, 500
"""Recorded and not, in turn, so many samples each."""


def line(target: Target, work: Callable[[], None], what: str) -> Line:
    """The cache is evicted, the device waited for, `work` done, the device waited for: recorded against not. Delivery
    of the records, and what is made of them, included."""

    def unrecorded() -> None:
        target.evict()
        target.synchronize()
        work()
        target.synchronize()

    plain, recorded = [], []
    for _ in range(TURNS):
        plain.append(_mean_us(target, unrecorded))
        recorder = target.recorder()
        recorder.start()
        try:
            recorder.one_at_a_time()
            recorded.append(_mean_us(target, partial(recorder.sample, what, target.evict, work), recorder))
        finally:
            recorder.stop()
    ratio = median([r / p for r, p in zip(recorded, plain, strict=True)])
    expected = median(plain)
    return Line(
        framework="torch",
        work=f"the wall time of a sample of {what}, recorded",
        recorded_us=ratio * expected,
        expected_us=expected,
        ratio=ratio,
        low_us=(1.0 - MOST) * expected,
        high_us=(1.0 + MOST) * expected,
        verdict=OK if abs(ratio - 1.0) <= MOST else OFF,
        because=f"the same, not recorded, {TURNS} times in turn; {MOST:.0%}",
        samples=TURNS * SAMPLES,
    )


def _mean_us(target: Target, once: Callable[[], None], recorder: Recorder | None = None) -> float:
    for _ in range(SAMPLES // 10):
        once()
    if recorder is not None:
        recorder.collect()
    begin = collected_at = target.clock()
    for _ in range(SAMPLES):
        once()
        if recorder is not None and target.clock() - collected_at >= COLLECT_PERIOD_NS:
            recorder.collect()
            collected_at = target.clock()
    if recorder is not None:
        recorder.collect()
    return (target.clock() - begin) / SAMPLES / 1000
