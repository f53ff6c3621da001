"""Measures the overhead of recording: the time that it adds to the wall time of a sample."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from suite.doctor.timer_proof.checks import OFF, OK, ProofRow
from suite.timing import median
from suite.timing.recorder import Recorder
from suite.timing.sampling import COLLECT_PERIOD_NS
from suite.timing.target import Target

MAX_OVERHEAD = 0.10
"""Largest allowed overhead, relative to the wall time of an unrecorded sample."""
TURNS, SAMPLES = 7, 500
"""Unrecorded and recorded samples alternate in TURNS turns of SAMPLES samples each."""


def overhead_row(target: Target, work: Callable[[], None], what: str) -> ProofRow:
    """Compare the wall time of recorded and unrecorded samples: evict, synchronize, `work`, synchronize.

    The recorded time includes the delivery and conversion of the records. The row shows `what` as the description of
    `work`.
    """

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
            recorder.serialize_kernels()
            recorded.append(_mean_us(target, partial(recorder.sample, what, target.evict, work), recorder))
        finally:
            recorder.stop()
    ratio = median([r / p for r, p in zip(recorded, plain, strict=True)])
    expected = median(plain)
    return ProofRow(
        framework="torch",
        work=f"the wall time of a sample of {what}, recorded",
        recorded_us=ratio * expected,
        expected_us=expected,
        ratio=ratio,
        low_us=(1.0 - MAX_OVERHEAD) * expected,
        high_us=(1.0 + MAX_OVERHEAD) * expected,
        verdict=OK if abs(ratio - 1.0) <= MAX_OVERHEAD else OFF,
        because=f"the same, not recorded, {TURNS} times in turn; {MAX_OVERHEAD:.0%}",
        samples=TURNS * SAMPLES,
    )


def _mean_us(target: Target, once: Callable[[], None], recorder: Recorder | None = None) -> float:
    """Mean wall time of `once`, in us. The recorder delivers records as often as in `Measurement.rounds`."""
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
