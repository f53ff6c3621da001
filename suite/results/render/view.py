"""Options of the tables on a terminal: the columns, the order of rows, and the row that others are compared with."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from suite.core.errors import UsageError
from suite.core.names import unknown
from suite.results.groups import Standing, standings
from suite.results.order import wrong_first
from suite.results.row import COLUMNS, TYPES, Row

RATE, NOTE, INTERVAL = "rate", "note", "interval"
"""Columns that are no field of `Row`. `interval` is shown beside device_us."""
DEFAULT = ("status", "device_us", "vs_best", "vs_peer", "of_limit", RATE, "error_ratio", NOTE)
"""The columns shown by default, after the implementation."""
COUNTS = (
    *(
        "status",
        "count_warps",
        "count_loads",
        "count_load_sectors",
        "count_stores",
        "count_store_sectors",
        "count_shared_loads",
    ),
    *("count_shared_stores", "count_conflicts", "count_atomics", "count_barriers", "count_divergent", "count_flops"),
    *("count_elements_loaded", "count_elements_stored", "count_masked", "counted"),
)
"""The columns shown with `--count`."""
MORE_IS_BETTER = frozenset(
    (
        *("vs_best", "vs_best_low", "vs_best_high", "vs_peer", "of_limit", "gb_per_s", "tflops", "occupancy"),
        *("ncu_occupancy", "ncu_tensor", "ncu_dram", "ncu_l2", "ncu_issue"),
    )
)
KNOWN = (*COLUMNS, RATE, NOTE)


@dataclass(frozen=True)
class View:
    """Options of `compare` that change only the tables on the terminal.

    columns: names of columns of `Row`, RATE and NOTE; empty for the default ones.
    sort: a column of `Row`; empty for the order of the run.
    wide: show every column that has a value.
    baseline: the implementation to compare others with, instead of the fastest vendor implementation.
    counts: show the columns of `--count` instead of the default ones.
    """

    columns: tuple[str, ...] = ()
    sort: str = ""
    wide: bool = False
    baseline: str = ""
    counts: bool = False

    def check(self) -> None:
        """Raise `UsageError` for a name that is no column."""
        for flag, names, valid in (("--columns", self.columns, KNOWN), ("--sort", (self.sort,), COLUMNS)):
            for name in filter(None, names):
                if name not in valid:
                    raise UsageError(f"{flag}: {unknown(name, valid, see='docs/results.md')}")
        if self.wide and self.columns:
            raise UsageError("--wide shows every column and --columns the named ones; give one of the two")

    def ordered(self, rows: Sequence[Row]) -> list[Row]:
        """`rows` in the chosen order, the best first; the rows that failed before all others.

        Noisy rows come after all others except the rows without a value.
        """
        return wrong_first(sorted(rows, key=self._place) if self.sort else rows)

    def _place(self, row: Row) -> tuple[int, float, str]:
        value = getattr(row, self.sort)
        if TYPES[self.sort] is str or isinstance(value, str):
            return (0 if value else 2, 0.0, str(value))
        if value is None or math.isnan(value):
            return (2, 0.0, "")
        return (1 if row.noisy else 0, -value if self.sort in MORE_IS_BETTER else value, "")


@dataclass(frozen=True)
class Comparison:
    """The rows that the rows of one case are compared with, and the ratios. A ratio above 1 is faster."""

    rows: Sequence[Row]
    baseline: str = ""

    @property
    def head(self) -> str:
        return f"vs {self.baseline}" if self.baseline else "vs best vendor"

    @cached_property
    def standings(self) -> dict[str, Standing]:
        """The ranking of the rows, by device."""
        return standings(self.rows)

    def reference(self, row: Row) -> Row | None:
        """The row that `row` is compared with. None without a baseline if a noisy vendor row may be the best one."""
        among = self.standings[row.device]
        if not self.baseline:
            return among.vendor
        return next((each for each in among.timed if each.implementation == self.baseline), None)

    def ratio(self, row: Row) -> float | None:
        """Speed of `row` relative to its reference; None if one of the two is not timed or is noisy."""
        if not self.baseline:
            return self.standings[row.device].ratio(row)
        reference = self.reference(row)
        if reference is None or row.noisy or reference.noisy or not row.device_us or not reference.device_us:
            return None
        if row.vs_best and reference.vs_best:  # both were timed in turns
            return row.vs_best / reference.vs_best
        return reference.device_us / row.device_us

    def is_faster(self, row: Row) -> bool | None:
        """True if the row is faster than its reference, False if slower, None if the interval allows both."""
        ratio = self.ratio(row)
        if ratio is None:
            return None
        if self.baseline or row.vs_best_low is None or row.vs_best_high is None:
            return ratio > 1
        return None if row.vs_best_low <= 1 <= row.vs_best_high else ratio > 1
