"""Defines `Row`: one implementation on one case. Its fields are the columns of the CSV, the JSON and the DataFrame."""

# ruff: noqa: RUF009 (`_column` makes a dataclass field)

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any, get_type_hints

from suite.core.errors import ResultsError
from suite.core.text import one_line

Key = tuple[str, ...]
MEASURED = (
    *("device_us", "device_us_low", "device_us_high", "vs_best", "vs_best_low", "vs_best_high", "clock_sm_mhz"),
    *("sustained_us", "sustained_us_low", "sustained_us_high"),
)
"""The columns that verdicts are computed from."""
OUTSIDE_TABLE = "beside"
"""Key in the metadata of a field of `Row` that is no column."""


class Status(StrEnum):
    """The result of one implementation on one case."""

    OK = "ok"
    WRONG = "wrong"
    ERROR = "error"
    TIMEOUT = "timeout"
    UNAVAILABLE = "unavailable"
    UNSUPPORTED = "unsupported"


FAILURES = frozenset((Status.WRONG, Status.ERROR, Status.TIMEOUT))


class Mode(StrEnum):
    """The way in which an implementation runs. Only native rows are timed."""

    NATIVE = "native"
    INTERPRETED = "interpreted"
    EMULATED = "emulated"


class Attempt(StrEnum):
    """The state of a measurement: not tried, done or failed."""

    NOT_TRIED = ""
    DONE = "done"
    FAILED = "failed"


class StoppedBy(StrEnum):
    """The reason why sampling ended: a narrow enough interval, or the time budget. Empty if nothing was sampled."""

    NOTHING = ""
    INTERVAL = "interval"
    BUDGET = "budget"


class Bound(StrEnum):
    """The resource that limits the kernels of a call, by Nsight Compute's counters (`--profile ncu`)."""

    UNKNOWN = ""
    TENSOR = "tensor cores"
    DRAM = "DRAM"
    L2 = "L2"
    ISSUE = "issue slots"
    LATENCY = "latency"


def _column(about: str, default: Any = None) -> Any:
    return field(default=default, metadata={"about": about})


def _outside_table(default: Any) -> Any:
    """A field that is no column. It is kept in a file beside the table."""
    return field(default=default, repr=False, compare=False, metadata={OUTSIDE_TABLE: True})


@dataclass(slots=True)
class Row:
    """One implementation on one case. A number that was not measured is None, and empty in the CSV.

    Every field except `sample_us` is a column.

    A text given for an enumeration is converted; a text that is none of its values raises `ValueError`.
    Programs decide by the typed fields alone; `reason` and `remarks` are for people.
    """

    operation: str
    case: str
    dtype: str
    precision: str
    implementation: str
    execution: Mode = _column(
        "native, interpreted (Triton without a GPU) or emulated (CUDA without a GPU)", Mode.NATIVE
    )
    status: Status = _column(" | ".join(Status), Status.OK)
    reason: str = _column("the reason why the status is not ok, or why a number is missing", "")
    device: str = _column("cpu, or cuda:INDEX", "")
    device_us: float | None = _column("median time the device was busy for one call; on a CPU the time of one call")
    device_us_low: float | None = _column("lower end of the median's 95% interval")
    device_us_high: float | None = _column("upper end of the median's 95% interval")
    vs_best: float | None = _column("device_us of the best vendor row / this row's: above 1 is faster than the vendor")
    vs_best_low: float | None = _column("lower end of the 95% interval of vs_best")
    vs_best_high: float | None = _column("upper end of the 95% interval of vs_best")
    of_limit: float | None = _column("the shortest possible time / device_us: 1 is the hardware's limit")
    limit: str = _column("the limiting resource, memory or arithmetic, and the source of its peak", "")
    gb_per_s: float | None = _column("the bytes that the operation needs / device_us, in 10^9 bytes per second")
    tflops: float | None = _column("the flops that the operation needs / device_us, in 10^12 per second")
    latency_us: float | None = _column(
        "host time of one call from issue until its result is ready, with the cache in the same state as for device_us"
    )
    dispatch_us: float | None = _column("host time that one call of a steady loop takes to return")
    to_device_us: float | None = _column("time to copy the inputs from pageable host memory to the device")
    to_device_pinned_us: float | None = _column("time to copy the inputs from pinned host memory to the device")
    to_host_us: float | None = _column("time to copy the result to pageable host memory")
    to_host_pinned_us: float | None = _column("time to copy the result to pinned host memory")
    program_us: float | None = _column("time of inputs to the device, call, and result to pageable host memory")
    program_pinned_us: float | None = _column("time of inputs to the device, call, and result to pinned host memory")
    first_call_s: float | None = _column("the first call in this run: load and, if not cached, build, compile, tune")
    compile_s: float | None = _column("the first call in a fresh process with empty caches: load, build, compile, tune")
    compile_warm_s: float | None = _column("the first call in a fresh process with the caches that such a call leaves")
    joules: float | None = _column("energy of one call back to back, from the device's counter")
    gflop_per_joule: float | None = _column("the flops that the operation needs / joules, in 10^9 per joule")
    peak_bytes: float | None = _column("device memory that one call needs besides inputs and output")
    error_ratio: float | None = _column("largest error / its bound: above 1 is wrong")
    max_ulp: float | None = _column("largest error in units in the last place of the output type")
    max_rel: float | None = _column("largest error / the largest magnitude of the float64 truth")
    deterministic: str = _column("yes; or no: two calls with the same inputs gave different bits", "")
    kernels: float | None = _column("device activities (kernels, copies, fills) that one call causes")
    recorder: str = _column("cupti (device activity records) or wall (host clock)", "")
    cache: str = _column("state of the L2 cache before a sample: cold or warm", "")
    samples: int | None = _column("number of samples; with --repeat that of the run with the fewest")
    sample_us: tuple[float, ...] = _outside_table(())
    """The raw samples of device_us in the order in which they were taken, one run after the other."""
    stopped_by: StoppedBy = _column(
        "why sampling ended: interval (narrow enough) or budget (time budget spent)", StoppedBy.NOTHING
    )
    remarks: str = _column("warnings about the numbers", "")
    config: str = _column("the kernels that it chose for the case, and the configuration that tuning chose", "")
    vendor: str = _column("the vendor library behind this implementation; empty for our own kernels", "")
    clock_sm_mhz: float | None = _column("SM clock, median of the readings during the case")
    temperature_c: float | None = _column("highest temperature of the device during the case")
    power_w: float | None = _column("highest power draw during the case")
    clock_reasons: str = _column("why the clocks were not at their highest", "")
    versions: str = _column("versions of the packages and tools that this implementation uses", "")
    seed: int = _column("seed of the inputs", 0)
    timed: Attempt = _column("done; failed: the reason says why; empty: not tried", Attempt.NOT_TRIED)
    compiled: Attempt = _column("the same for first calls in fresh processes", Attempt.NOT_TRIED)
    clocks_lowered: bool = _column("yes: heat or the power supply lowered the clocks during the case", False)
    suspect: bool = _column(
        "yes: faster than the cited or measured peak allows, so the time or the peak is wrong", False
    )
    killed_from_outside: bool = _column("yes: another process killed the worker; --resume runs the row again", False)
    kernels_run: str = _column("the kernels, copies and fills of one call: short names, [blocks x threads]", "")
    kernel_details: str = _column("whole names; grid, block, registers per thread, shared memory per block", "")
    clock_of_max: float | None = _column("clock_sm_mhz / the highest SM clock of the device")
    occupancy: float | None = _column("theoretical occupancy of the longest kernel: resident warps / the most that fit")
    noisy: bool = _column(
        "yes: the interval of device_us is wider than --max-noise, or device_us contradicts vs_best", False
    )
    runs: int = _column("number of runs in fresh processes (--repeat); the times are their medians", 1)
    spread: float | None = _column("largest / smallest device_us of the runs, minus 1; empty for one run")
    vs_best_spread: float | None = _column("largest / smallest vs_best of the runs, minus 1; empty for one run")
    compile_cache: str = _column("hit or miss: whether XLA's program came from its cache; empty if unknown", "")
    bytes: int | None = _column("the smallest possible traffic to memory: inputs read once, the output written once")
    flops: int | None = _column("the arithmetic of the definition, counted once")
    checked: str = _column("the telling cases that the implementation passed in this dtype and precision", "")
    ncu_tensor: float | None = _column("by Nsight Compute: activity of the tensor cores relative to their peak, 0 to 1")
    ncu_dram: float | None = _column("by Nsight Compute: activity of the device's memory relative to its peak, 0 to 1")
    ncu_l2: float | None = _column("by Nsight Compute: activity of the L2 cache relative to its peak, 0 to 1")
    ncu_issue: float | None = _column("by Nsight Compute: share of cycles in which an instruction is issued, 0 to 1")
    ncu_occupancy: float | None = _column("by Nsight Compute: achieved occupancy, resident warps / the most that fit")
    ncu_stall: str = _column("by Nsight Compute: the most frequent reason why warps wait", "")
    bound_by: Bound = _column("the resource that limits the kernels: the busiest unit, or latency", Bound.UNKNOWN)
    code: str = _column("--dump: the folder of the code in that of the run, and its files; or why there is none", "")
    diagnosis: str = _column("the usual mistake that explains a wrong result, and the share that it explains", "")
    error_map: str = _column(
        "share of wrong elements by tile: size of a tile, then rows; . none, 1-9 tenths, # all", ""
    )
    graph_us: float | None = _column("time of one call in a CUDA graph: that of a replay / its number of calls")
    vs_peer: float | None = _column(
        "device_us of the best public kernel library's row / this row's; empty if none was timed"
    )
    peer: str = _column("the public kernel library that this implementation calls; empty for all others", "")
    weak_bound: float | None = _column("share of elements whose bound is too wide to tell; empty if the bounds tell")
    weakness: str = _column("why a right result says little: a weak bound, or inputs that change nothing", "")
    rms: float | None = _column("root mean square error of the checked result")
    error_vs_vendor: float | None = _column(
        "rms / that of the most accurate vendor row of the case: above 1 is less accurate than the vendor"
    )
    threads: int | None = _column("threads that it had on a CPU; empty on a GPU, or if unknown")
    judged: int | None = _column(
        "calls whose whole result was judged: those of the check, and those of random rounds while timed; "
        "a fault in one of ten calls is found with the probability 1 - 0.9^judged"
    )
    ranks: int | None = _column("processes that computed it together, each on a GPU of its own; empty for one")
    bus_gb_per_s: float | None = _column(
        "the bytes that each rank must send / device_us, in 10^9 bytes per second; empty for one process"
    )
    product_us: float | None = _column("over several GPUs: the vendor's local product alone, in the same rounds")
    communication_us: float | None = _column("over several GPUs: the vendor's communication alone, in the same rounds")
    exposed_us: float | None = _column("over several GPUs: device_us - product_us, the transfer that is not hidden")
    of_limit_at_clock: float | None = _column("of_limit with the peak of arithmetic at clock_sm_mhz")
    sustained_us: float | None = _column(
        "median time of one call back to back for at least 2 s, on inputs that rotate over more than twice the cache"
    )
    sustained_us_low: float | None = _column("lower end of the median's 95% interval")
    sustained_us_high: float | None = _column("upper end of the median's 95% interval")
    sustained_of_limit: float | None = _column("the shortest possible time / sustained_us")
    sustained_of_limit_at_clock: float | None = _column(
        "sustained_of_limit with the peak of arithmetic at sustained_clock_mhz"
    )
    sustained_clock_mhz: float | None = _column("SM clock, median of the readings during the sustained calls")
    sustained_power_w: float | None = _column("mean power during the sustained calls")
    sustained_temperature_c: float | None = _column("highest temperature during the sustained calls")
    sustained: Attempt = _column("the same as timed for the sustained time", Attempt.NOT_TRIED)
    counted: str = _column("--count: the case in which one call was counted without a GPU; or why none was", "")
    count_warps: int | None = _column("warps that one call runs")
    count_loads: int | None = _column("requests of warps to load global memory, in one call")
    count_load_sectors: int | None = _column("sectors of 32 bytes that these touch")
    count_stores: int | None = _column("requests of warps to store to global memory")
    count_store_sectors: int | None = _column("sectors of 32 bytes that these touch")
    count_shared_loads: int | None = _column("requests of warps to load shared memory")
    count_shared_stores: int | None = _column("requests of warps to store to shared memory")
    count_conflicts: int | None = _column("bank conflicts: wavefronts of these beyond those that their width needs")
    count_atomics: int | None = _column("atomic operations of warps")
    count_barriers: int | None = _column("__syncthreads of warps")
    count_divergent: int | None = _column("branches at which the lanes of a warp part")
    count_flops: int | None = _column("additions and multiplications of threads; an fma is two")
    count_elements_loaded: int | None = _column("Triton: elements that one call loads, without the masked ones")
    count_elements_stored: int | None = _column("Triton: elements that one call stores, without the masked ones")
    count_masked: float | None = _column("Triton: share of elements that masks leave out of loads and stores, 0 to 1")

    host: str = _column("the host that ran it; empty for a run on one device", "")
    gpu: str = _column("the UUID of the GPU that ran it; empty on a CPU, and for a run on one device", "")
    driver: str = _column("the version of that GPU's driver", "")
    gpus: int | None = _column("number of GPUs of the model that timed it; empty for one")
    gpu_spread: float | None = _column("largest / smallest device_us of these GPUs, minus 1; empty for one")

    def __post_init__(self) -> None:
        for name in _ENUMERATIONS:
            setattr(self, name, TYPES[name](getattr(self, name)))

    @property
    def case_key(self) -> tuple[str, str, str, str]:
        """The values that all rows of one case share."""
        return (self.operation, self.case, self.dtype, self.precision)

    @property
    def key(self) -> Key:
        """The values that identify a row within one run."""
        return (*self.case_key, self.device, self.implementation)

    @property
    def is_ours(self) -> bool:
        """True unless the implementation is a vendor's or another public library's."""
        return not self.vendor and not self.peer

    @property
    def explanation(self) -> str:
        """The reason, and the diagnosis if there is one."""
        return "; ".join(filter(None, (self.reason, self.diagnosis)))

    @property
    def is_weak(self) -> bool:
        """True if the row says little though it ran: its bound is weak, or some input or parameter changes nothing."""
        return bool(self.weakness) and self.status in (Status.OK, Status.WRONG)

    @property
    def failed(self) -> bool:
        """True if the row is wrong, an error, a timeout, or faster than the device can be."""
        return self.status in FAILURES or self.suspect

    @property
    def damage(self) -> str:
        """A description of values that no measurement gives; empty for a sound row."""
        for name in MEASURED:
            value = getattr(self, name)
            if value is not None and not 0 <= value < math.inf:
                return f"{name} is {value!r}, which nothing measures"
        for name in ("device_us", "vs_best", "sustained_us"):
            value, low, high = (getattr(self, name + end) for end in ("", "_low", "_high"))
            if None not in (value, low, high) and not low <= value <= high:
                return f"{name} is {value}, outside its interval from {low} to {high}"
        return ""

    def fill(self, values: Mapping[str, object]) -> None:
        """Set the columns named in `values`, in place. None and NaN leave a column as it is. A text becomes one line.

        Raises `ResultsError` for a name that is no column, and for a text that is no value of the enumeration.
        """
        for name, value in values.items():
            if name not in TYPES:
                raise ResultsError(f"{one_line(name)!r} is not a column of a results table")
            if value is None or (isinstance(value, float) and math.isnan(value)):
                continue
            setattr(self, name, _converted(name, value))


TYPES: dict[str, Any] = get_type_hints(Row)
"""The type of each column."""
COLUMNS = tuple(each.name for each in fields(Row) if OUTSIDE_TABLE not in each.metadata)
_ENUMERATIONS = tuple(name for name, kind in TYPES.items() if isinstance(kind, type) and issubclass(kind, StrEnum))


def _converted(name: str, value: object) -> object:
    if not isinstance(value, str):
        return value
    text = one_line(value)
    try:
        return TYPES[name](text) if name in _ENUMERATIONS else text
    except ValueError:
        raise ResultsError(f"{name} is {text!r}; valid are {', '.join(filter(None, TYPES[name]))}") from None
