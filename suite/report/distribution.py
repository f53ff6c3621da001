"""Encodes the distribution of each row's samples, which the page draws on demand."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from string import ascii_lowercase, ascii_uppercase, digits
from typing import Any

from suite.report.load import Part, Run
from suite.results.samples import SUFFIX, read_samples

MAX_ROW_MARKS, MIN_ROW_MARKS, MAX_MARKS = 400, 6, 120_000
"""The largest and smallest number of quantiles of a row, and the approximate number of a page, to bound its size."""
DIGITS = ascii_uppercase + ascii_lowercase + digits + "-_"
LEVELS = len(DIGITS) ** 2 - 1


def distributions(runs: Sequence[Run]) -> dict[str, Any] | None:
    """The distributions as JSON values; None if no row has samples.

    `least` and `most` are the smallest and largest sample of each row in the table of all rows, or null. `text` has
    `marks` evenly spaced quantiles of each row with samples. Each quantile is a number of two digits out of `DIGITS`,
    on a scale from the row's least to its most. Raises `ResultsError` for a damaged file.
    """
    found = [sorted(samples) for run in runs for part in run.parts for samples in _samples(part)]
    count = sum(map(bool, found))
    if not count:
        return None
    marks = min(max(map(len, found)), max(MIN_ROW_MARKS, min(MAX_ROW_MARKS, MAX_MARKS // count)))
    return {
        "marks": marks,
        "least": [_short(samples[0]) if samples else None for samples in found],
        "most": [_short(samples[-1]) if samples else None for samples in found],
        "text": "".join(_quantile(samples, place / max(1, marks - 1)) for samples in found if samples
                        for place in range(marks)),
    }  # fmt: skip


def _samples(part: Part) -> Iterator[tuple[float, ...]]:
    """The samples of each row of a folder or table."""
    folder = part.path if part.path.is_dir() else part.path.parent
    names = dict.fromkeys(entry.row.operation for entry in part.entries)
    kept = {name: read_samples(folder / f"{name}{SUFFIX}") for name in names}
    for entry in part.entries:
        samples = entry.row.sample_us or kept[entry.row.operation].get(entry.row.key, ())
        yield samples if all(map(math.isfinite, samples)) else ()


def _quantile(samples: Sequence[float], part: float) -> str:
    least, most = samples[0], samples[-1]
    value = samples[round(part * (len(samples) - 1))]
    level = round((value - least) / (most - least) * LEVELS) if most > least else 0
    return DIGITS[level // len(DIGITS)] + DIGITS[level % len(DIGITS)]


def _short(us: float) -> float:
    return float(f"{us:.5g}")
