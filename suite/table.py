"""The table: one dataclass is the one schema of the DataFrame, the CSV, the Markdown and the JSON."""

from __future__ import annotations

import csv
import io
import os
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from suite.errors import ResultsError

if TYPE_CHECKING:
    import pandas as pd

STATUSES = ("ok", "wrong", "error", "timeout", "unavailable", "unsupported")
FAILURES = ("wrong", "error", "timeout")
SUSPECT = "suspect"


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
    def key(self) -> tuple[str, str, str, str, str, str]:
        """What tells a row from every other."""
        return (*self.case_key, self.device, self.implementation)

    @property
    def suspect(self) -> bool:
        """Faster than the device can be: a failure of the timer, not a feat of the kernel."""
        return self.flags.startswith(SUSPECT)


COLUMNS = tuple(f.name for f in fields(Row))


def frame(rows: Iterable[Row]) -> pd.DataFrame:
    """The rows as a DataFrame, one column for each field of `Row`."""
    import pandas as pd

    return pd.DataFrame([[getattr(row, name) for name in COLUMNS] for row in rows], columns=list(COLUMNS))


def to_csv(rows: Iterable[Row]) -> str:
    """RFC 4180 text. Floats are written so that reading gives the same number."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for row in rows:
        writer.writerow(["" if getattr(row, name) is None else getattr(row, name) for name in COLUMNS])
    return text.getvalue()


def read_csv(path: Path) -> pd.DataFrame:
    """A CSV this suite wrote, as a DataFrame. Raises `ResultsError` if it is not one."""
    import pandas as pd

    text_columns = {f.name: str for f in fields(Row) if f.type == "str"}
    try:
        data = pd.read_csv(
            path,
            dtype=text_columns,
            keep_default_na=False,
            na_values={c: [""] for c in COLUMNS if c not in text_columns},
            float_precision="round_trip",
        )
    except (OSError, ValueError) as error:
        raise ResultsError(f"{path}: not a readable results table: {error}") from error
    missing = [name for name in COLUMNS if name not in data.columns]
    if missing:
        raise ResultsError(f"{path}: not a results table of this version: no column {', '.join(missing)}")
    return data


def from_frame(data: pd.DataFrame) -> list[Row]:
    """The rows of a table that `frame` or `read_csv` gave."""
    rows = []
    for values in data[list(COLUMNS)].itertuples(index=False):
        present: dict[str, Any] = {
            name: None if value != value else value for name, value in zip(COLUMNS, values, strict=True)
        }
        rows.append(Row(**present))
    return rows


def write_atomically(path: Path, text: str) -> None:
    """Replace `path` by `text` in one step: a reader sees the old file or the new one, whole. Raises `ResultsError`."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            os.chmod(temporary, 0o644)
            os.replace(temporary, path)
        except BaseException:
            os.unlink(temporary)
            raise
    except OSError as error:
        raise ResultsError(f"cannot write {path}: {error.strerror or error}; what was there is unchanged") from error
