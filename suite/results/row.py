"""The table: one dataclass is the one schema of the DataFrame, the CSV, the Markdown and the JSON."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from suite.core.errors import ResultsError
from suite.core.text import one_line

if TYPE_CHECKING:
    import pandas as pd

STATUSES = ("ok", "wrong", "error", "timeout", "unavailable", "unsupported")
FAILURES = ("wrong", "error", "timeout")
SUSPECT = "suspect"
Key = tuple[str, ...]


def _column(about: str, default: Any = None) -> Any:
    return field(default=default, metadata={"about": about})


@dataclass
class Row:
    """One implementation on one case. Numbers that were not measured are None, and empty in the CSV."""

    operation: str
    case: str
    dtype: str
    precision: str
    implementation: str
    mode: str = _column("native, interpreted (Triton without a GPU) or emulated (CUDA without a GPU)", "")
    status: str = _column(" | ".join(STATUSES), "ok")
    reason: str = _column("why the status is not ok, or why a number is missing", "")
    device: str = _column("cpu, or cuda:INDEX", "")
    device_us: float | None = _column("time the device was busy for one call, median; on a CPU the time of one call")
    device_us_low: float | None = _column("lower end of the median's 95% interval")
    device_us_high: float | None = _column("upper end of the median's 95% interval")
    vs_best: float | None = _column("best vendor line's device_us over this row's: above 1 is faster than the vendor")
    vs_best_low: float | None = _column("lower end of the 95% interval of vs_best")
    vs_best_high: float | None = _column("upper end of the 95% interval of vs_best")
    of_limit: float | None = _column("the limit's time over device_us: 1 is the hardware's limit")
    limit: str = _column("what the limit is: memory or arithmetic, and the source of the peak", "")
    gb_per_s: float | None = _column("the operation's own bytes over device_us, 10^9 bytes a second")
    tflops: float | None = _column("the operation's own flops over device_us, 10^12 a second")
    latency_us: float | None = _column("one call from issue until its result is ready, seen from the host")
    dispatch_us: float | None = _column("host time that one call takes to return without waiting")
    to_device_us: float | None = _column("copying the inputs from pageable host memory to the device")
    to_device_pinned_us: float | None = _column("the same from pinned host memory")
    to_host_us: float | None = _column("copying the result to pageable host memory")
    to_host_pinned_us: float | None = _column("the same to pinned host memory")
    program_us: float | None = _column("inputs to the device, call, result to the host, through pageable memory")
    program_pinned_us: float | None = _column("the same through pinned memory")
    first_call_s: float | None = _column("the first call in this run: load, build, compile and tune what is not cached")
    compile_s: float | None = _column("the first call in a fresh process with empty caches: load, build, compile, tune")
    compile_warm_s: float | None = _column("the first call in a fresh process with the caches that such a call leaves")
    joules: float | None = _column("energy of one call, from the device's counter")
    gflop_per_joule: float | None = _column("the operation's own flops over joules, 10^9 a joule")
    peak_bytes: float | None = _column("device memory that one call takes beyond inputs and output")
    error_ratio: float | None = _column("largest error over its bound: above 1 is wrong")
    max_ulp: float | None = _column("largest error in units in the last place of the output type")
    max_rel: float | None = _column("largest error over the largest magnitude of the float64 truth")
    deterministic: str = _column("yes; or no: two calls with the same inputs gave different bits", "")
    kernels: float | None = _column("device activities (kernels, copies, fills) that one call causes")
    recorder: str = _column("cupti (device activity records) or wall (host clock)", "")
    cache: str = _column("state of the L2 cache before a sample: cold or warm", "")
    samples: int | None = _column("samples taken")
    stopped_by: str = _column("what ended the sampling: interval (narrow enough) or budget (of time)", "")
    flags: str = _column("what a reader should know before trusting the numbers", "")
    config: str = _column("what tuning chose", "")
    vendor: str = _column("the vendor library behind this line; empty for our own kernels", "")
    clock_sm_mhz: float | None = _column("SM clock, median of the readings during the case")
    temperature_c: float | None = _column("highest temperature of the device during the case")
    power_w: float | None = _column("highest power draw during the case")
    clock_reasons: str = _column("why the clocks were not at their highest", "")
    versions: str = _column("versions of what this line runs on", "")
    seed: int = _column("seed of the inputs", 0)

    @property
    def case_key(self) -> tuple[str, str, str, str]:
        """What the rows of one case share."""
        return (self.operation, self.case, self.dtype, self.precision)

    @property
    def key(self) -> Key:
        """What tells a row from every other."""
        return (*self.case_key, self.device, self.implementation)

    @property
    def suspect(self) -> bool:
        """Faster than the device can be: a failure of the timer, not a feat of the kernel."""
        return self.flags.startswith(SUSPECT)


COLUMNS = tuple(f.name for f in fields(Row))
TYPES = {f.name: str(f.type) for f in fields(Row)}


def frame(rows: Iterable[Row]) -> pd.DataFrame:
    """The rows as a DataFrame, one column for each field of `Row`."""
    import pandas as pd

    return pd.DataFrame([[getattr(row, name) for name in COLUMNS] for row in rows], columns=list(COLUMNS))


def to_csv(rows: Iterable[Row]) -> str:
    """RFC 4180 text, but lines end in a line feed alone. Floats are written so that reading gives the same number."""
    lines = [_line(COLUMNS)]
    for row in rows:
        lines.append(_line(["" if getattr(row, name) is None else getattr(row, name) for name in COLUMNS]))
    return "".join(lines)


def _line(values: Iterable[Any]) -> str:
    """A record. The writer quotes what is in its line's end, so it is told of both characters that can end one."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\r\n").writerow(values)
    return text.getvalue().removesuffix("\r\n") + "\n"


def read_rows(path: Path) -> list[Row]:
    """The rows of a CSV that this suite wrote. Raises `ResultsError` if it is not one, or is damaged."""
    try:
        with path.open(encoding="utf-8", newline="") as file:
            records = list(csv.reader(file, strict=True))
    except (OSError, ValueError, csv.Error) as error:
        raise ResultsError(f"{path}: not a readable results table: {one_line(error)}") from error
    if not records:
        raise ResultsError(f"{path}: not a readable results table: No columns to parse from file")
    header, *body = records
    missing = [name for name in COLUMNS if header.count(name) != 1]
    if missing:
        raise ResultsError(f"{path}: not a results table of this version: no column {', '.join(missing)}")
    places = {name: header.index(name) for name in COLUMNS}
    rows = []
    for number, record in enumerate(body, 1):
        try:
            rows.append(_row(record, places, len(header)))
        except ValueError as error:
            raise ResultsError(
                f"{path}: not a results table, or a damaged one: row {number}: {one_line(error)}"
            ) from None
    return rows


def _row(record: list[str], places: dict[str, int], width: int) -> Row:
    """One record as a row. Raises `ValueError` saying what is wrong with it."""
    if len(record) < width:
        raise ValueError(f"{COLUMNS[-1]} is missing")
    if len(record) > width:
        raise ValueError(f"{len(record)} fields instead of {width}")
    row = Row(**{name: _value(name, record[place]) for name, place in places.items()})
    if row.status not in STATUSES:
        raise ValueError(f"status is {row.status!r}")
    return row


def _value(name: str, text: str) -> Any:
    kind = TYPES[name]
    if kind == "str":
        return text
    if text == "" and kind.endswith("None"):
        return None
    try:
        number = float(text.replace("_", "x"))  # Python's own separator of digits, which no table has
        if kind.startswith("int"):
            return int(text) if text.lstrip("-").isdecimal() else _whole(number)
    except (ValueError, OverflowError):
        raise ValueError(f"{name} is {text!r}, which nothing measures" if text else f"{name} is missing") from None
    return None if math.isnan(number) and kind.endswith("None") else number


def _whole(number: float) -> int:
    if number != int(number):
        raise ValueError
    return int(number)


def read_csv(path: Path) -> pd.DataFrame:
    """`read_rows` as a DataFrame."""
    return frame(read_rows(path))


def from_frame(data: pd.DataFrame) -> list[Row]:
    """The rows of a table that `frame` or `read_csv` gave."""
    rows = []
    for values in data[list(COLUMNS)].itertuples(index=False):
        present: dict[str, Any] = {
            name: None if value != value else value for name, value in zip(COLUMNS, values, strict=True)
        }
        rows.append(Row(**present))
    return rows
