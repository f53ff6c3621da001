"""Reads tables of older versions: columns that they lack are derived from the texts of the row."""

from __future__ import annotations

from suite.results.noise import MAX_NOISE, noise
from suite.results.row import Attempt, Row, Status

MISSING = ("timed", "compiled", "clocks_lowered", "suspect")
"""Columns that older tables do not have."""
RENAMED = {"flags": "remarks", "mode": "execution"}
"""New names of columns that were renamed. The old names are also attributes of a pandas DataFrame."""
ADDED_COLUMNS = (
    *("killed_from_outside", "kernels_run", "kernel_details", "clock_of_max", "occupancy"),
    *("noisy", "runs", "spread", "vs_best_spread", "compile_cache", "bytes", "flops", "checked"),
    *("ncu_tensor", "ncu_dram", "ncu_l2", "ncu_issue", "ncu_occupancy", "ncu_stall", "bound_by", "code"),
    *("diagnosis", "error_map", "graph_us", "vs_peer", "peer", "weak_bound", "weakness", "rms", "error_vs_vendor"),
    "threads",
    "judged",
    *("ranks", "bus_gb_per_s", "product_us", "communication_us", "exposed_us"),
    *("of_limit_at_clock", "sustained_us", "sustained_us_low", "sustained_us_high"),
    *("sustained_of_limit", "sustained_of_limit_at_clock"),
    *("sustained_clock_mhz", "sustained_power_w", "sustained_temperature_c", "sustained"),
    *(
        "counted",
        "count_warps",
        "count_loads",
        "count_load_sectors",
        "count_stores",
        "count_store_sectors",
        "count_shared_loads",
    ),
    *("count_shared_stores", "count_conflicts", "count_atomics", "count_barriers", "count_divergent", "count_flops"),
    *("count_elements_loaded", "count_elements_stored", "count_masked", "host", "gpu", "driver"),
    *("gpus", "gpu_spread"),
)
"""Columns that were added later. A table without them gets their defaults."""

NOT_TIMED, FAILED_WHILE_TIMED = "not timed: ", "while timed: "
NOT_COMPILED = "not compiled again: "
CLOCKS_LOWERED = "clocks were lowered"
SUSPECT = "suspect: "


def with_noise(row: Row) -> Row:
    """Set, in place, the column `noisy` of a row from a table without it."""
    row.noisy = row.status is Status.OK and row.device_us is not None and noise(row) > MAX_NOISE
    return row


def completed(row: Row) -> Row:
    """Set, in place, the columns `MISSING` of a row that was read from an older table."""
    row.timed = _timed(row)
    row.compiled = _compiled(row)
    row.clocks_lowered = CLOCKS_LOWERED in row.remarks
    row.suspect = row.remarks.startswith(SUSPECT)
    return row


def _timed(row: Row) -> Attempt:
    if row.status is not Status.OK:
        return Attempt.FAILED if row.reason.startswith(FAILED_WHILE_TIMED) else Attempt.NOT_TRIED
    if row.device_us is not None:
        return Attempt.DONE
    return Attempt.FAILED if row.recorder or NOT_TIMED in row.reason else Attempt.NOT_TRIED


def _compiled(row: Row) -> Attempt:
    if NOT_COMPILED in row.reason:
        return Attempt.FAILED
    return Attempt.NOT_TRIED if row.compile_warm_s is None else Attempt.DONE
