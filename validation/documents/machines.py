"""docs/comparing_runs.md: the spread of one command's times over three machines with GPUs of one model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

from suite.results.csv_file import read_rows
from suite.results.render import pipe_table
from suite.results.row import Row, Status
from validation.documents import ROOT
from validation.documents.rows import H100
from validation.documents.tables import with_marked

PAGE = ROOT / "docs" / "comparing_runs.md"
RUNS = tuple(H100 / "machines" / name for name in ("1", "2", "3"))
CHANGED = ("layer_norm_grad", "rms_norm_grad")
"""Operations whose CUDA kernels changed between the runs."""
SHORT_US = 10.0


@cache
def pairs() -> tuple[tuple[Row, ...], ...]:
    """The rows that every run has with a time that is not noisy, one of each run."""
    runs = [{row.key: row for path in sorted(run.glob("*.csv")) for row in read_rows(path)} for run in RUNS]
    common = [tuple(run[key] for run in runs) for key in runs[0] if all(key in run for run in runs)]
    return tuple(rows for rows in common if all(row.status is Status.OK and row.device_us for row in rows))


def spreads(rows: Sequence[Sequence[Row]], column: str) -> list[float]:
    """The largest value divided by the smallest, minus 1, in percent, of each row, in rising order."""
    found = []
    for each in rows:
        values = [getattr(row, column) for row in each]
        if all(values) and not any(row.noisy for row in each):
            found.append(100 * (max(values) / min(values) - 1))
    return sorted(found)


def is_changed(row: Row) -> bool:
    return row.operation in CHANGED and row.implementation.startswith("cuda")


GROUPS: tuple[tuple[str, Callable[[Row], bool]], ...] = (
    ("vendor libraries, 10 us or more", lambda row: bool(row.vendor) and (row.device_us or 0) >= SHORT_US),
    ("this suite's kernels, 10 us or more", lambda row: not row.vendor and (row.device_us or 0) >= SHORT_US),
    ("all, below 10 us", lambda row: (row.device_us or 0) < SHORT_US),
)


def table() -> str:
    """A line for each group of rows: their number, and the middle, the 90th of 100 and the largest spread."""
    body = []
    for title, belongs in GROUPS:
        rows = [each for each in pairs() if belongs(each[0]) and not is_changed(each[0])]
        times, ratios = (spreads(rows, column) for column in ("device_us", "vs_best"))
        body.append(
            [title, str(len(times)), *(f"{at(found, p):.1f}" for found in (times, ratios) for p in (0.5, 0.9, 1))]
        )
    heads = [
        "rows",
        "number",
        *(f"{name}, {p}" for name in ("device_us", "vs_best") for p in ("middle", "90%", "largest")),
    ]
    return pipe_table(heads, body, set(heads[1:]))


def at(values: Sequence[float], share: float) -> float:
    """The value below which that share of the values lies."""
    return values[int(share * (len(values) - 1))]


def filled(text: str) -> str:
    """Return the page with its table."""
    return with_marked(text, table() + "\n")
