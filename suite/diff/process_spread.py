"""Estimates the difference between two processes that run the same code.

The samples of a run come from one process: memory lies where it was allocated, a library has chosen its kernel, a JIT
has compiled its program. Another process may be faster or slower in all its samples; no interval within a run shows
that. A run with `--repeat` has measured this difference; for any other run it is assumed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import NormalDist, median

from suite.results.row import Row

MIN_RUNS = 3
"""The smallest number of runs whose measured spread is used. Two runs agree by chance too often."""
RANGE_FACTOR = 1.5
"""Multiple of the range of three runs that equals 2.5 standard deviations of a process, on average."""
TICK_US = {"cupti": 0.032}
"""Resolution of a recorder's clock: CUPTI's timestamps on an H200 are multiples of 32 ns. Others are far finer."""
TICKS = 4
"""Difference of a short kernel between processes, in ticks: 2.24 and 2.37 us were seen on an H200."""
ASSUMED_TICKS = {"jax": 13}
"""The same by framework, where it is larger and was not measured. One program of XLA took 2.88 and 3.30 us in two
processes of an H200, 3.28 and 3.68 us in two of an H100, each with a warm cache and the same kernel, launch and
registers. Kernels of other frameworks beside it did not change."""
ASSUMED = {"cupti": 0.01, "wall": 0.5}
"""Relative difference assumed between processes, by recorder, where it was not measured. `vs_best` of 208 rows on an
H200 differed by 1.4% at most. On two busy cores an addition in NumPy took 105 us in one process, 202 in another."""
BETWEEN_GPUS = 0.055
"""The same between two GPUs of a model, for a row and for its control. `vs_best`, in which both count, differed by 7.7%
at most on three H100 (docs/comparing_runs.md)."""
ERROR_RATE = 0.05
"""Probability of any FASTER or SLOWER row in a run of unchanged code."""


@dataclass(frozen=True)
class Typical:
    """Median spreads of the rows of a run with `--repeat`. They are the least spread assumed for a row of that run."""

    device_us: float = 0.0
    vs_best: float = 0.0

    @classmethod
    def from_rows(cls, rows: Iterable[Row]) -> Typical:
        repeated = [row for row in rows if row.runs >= MIN_RUNS]
        times = [row.spread for row in repeated if row.spread is not None]
        ratios = [row.vs_best_spread for row in repeated if row.vs_best_spread is not None]
        return cls(median(times) if times else 0.0, median(ratios) if ratios else 0.0)


def process_arm(row: Row, typical: Typical, *, ranked: bool) -> float:
    """The largest difference of the logarithm of a row's speed in another process (`ranked`: of its `vs_best`)."""
    measured, least = (row.vs_best_spread, typical.vs_best) if ranked else (row.spread, typical.device_us)
    if row.runs >= MIN_RUNS and measured is not None:
        relative, ticks = RANGE_FACTOR * math.log1p(max(measured, least)), TICKS
    else:
        relative = ASSUMED.get(row.recorder, ASSUMED["wall"])
        ticks = ASSUMED_TICKS.get(row.implementation.partition("/")[0], TICKS)
    return math.hypot(relative, ticks * tick(row))


def tick(row: Row) -> float:
    """A step of the recorder's clock, relative to the time."""
    return TICK_US.get(row.recorder, 0.0) / (row.device_us or math.nan)


def family_factor(count: int) -> float:
    """The factor by which 95% intervals must be widened so that all of `count` intervals hold together, at 95%."""
    normal = NormalDist()
    return normal.inv_cdf(1 - ERROR_RATE / 2 / max(count, 1)) / normal.inv_cdf(1 - ERROR_RATE / 2)
