"""The messages between a worker and its parent: one JSON object a line, over two pipes.

Each line begins with the number of its request; events before the first request have 0. A process that a kernel forks
may answer a request a second time: lines with an earlier number are dropped.

The parent sends a request. The worker sends `Ready` once after it has started, `Started` before each phase that may
hang or crash, and `Done` with the reply. If it dies or sends nothing for too long, the failure is
attributed to the implementation that `Started` names.

    request                             replies
    CheckRequest                        CheckReply, Failed
    TimeRequest, TimeExternalRequest    TimeReply, TimingFailed
    SustainRequest                      SustainReply, Failed
    ProbeRequest                        ProbeReply, Failed
    TuneRequest                         TuneReply, Failed
    DescribeRequest                     DescribeReply, Failed
    BuildRequest                        BuildReply, Failed
    PeaksRequest                        PeaksReply, Failed
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from suite.core.least import NOTHING_MORE, Least
from suite.core.phases import Started
from suite.custom.about import About
from suite.external.requests import TimeExternalRequest
from suite.frameworks.triton.tuned import Entry
from suite.implementations.identity import ExternalReference, Reference, name_of
from suite.problem.case import Case
from suite.problem.source import Source
from suite.processes.codec import ProtocolError, from_json, to_json
from suite.processes.limits import FIRST_CALL_S
from suite.results.noise import MAX_NOISE

__all__ = [
    "ExternalReference",
    "ProtocolError",
    "Reference",
    "Started",
    "TimeExternalRequest",
    "decode",
    "encode",
    "name_of",
]


@dataclass(frozen=True)
class CheckRequest:
    """Run the checked call of one implementation on one case, with inputs drawn from `seed`.

    `timeout_s` limits the first call of a user's file, which runs in an external process.
    """

    case: Case
    implementation: Reference
    seed: int
    timeout_s: float = FIRST_CALL_S


@dataclass(frozen=True)
class ProbeRequest:
    """Probe one implementation: call it on the operation's telling cases, in the dtype and precision of `case`.

    A user's file gets all of them, and with `every` an implementation of the tree does; else it gets a selection.
    """

    case: Case
    implementation: Reference
    seed: int
    timeout_s: float = FIRST_CALL_S
    every: bool = False


@dataclass(frozen=True)
class TimeRequest:
    """Time implementations of the tree that agree, together.

    `cache` is `cold` or `warm`. `transfers` adds copies to and from the device. Implementations whose relative interval
    is wider than `max_noise` are sampled longer. `least` is the least that is measured of each.
    """

    case: Case
    implementations: tuple[str, ...]
    seed: int
    cache: str
    transfers: bool
    max_noise: float = MAX_NOISE
    least: Least = NOTHING_MORE


@dataclass(frozen=True)
class SustainRequest:
    """Measure one implementation of the tree under a steady load. It agrees, and has a device time."""

    case: Case
    implementation: str
    seed: int


@dataclass(frozen=True)
class TuneRequest:
    """Search the configurations of one implementation for the fastest that agrees."""

    case: Case
    implementation: Reference
    seed: int
    least: Least = NOTHING_MORE


@dataclass(frozen=True)
class BuildRequest:
    """Call one implementation of the tree once, so that the caches hold what it builds. Nothing is tuned.

    `telling`: `too` calls it also on the telling cases in the dtype and precision of the case, `only` on these alone.
    """

    case: Case
    implementation: Reference
    seed: int
    telling: Literal["no", "too", "only"] = "no"


@dataclass(frozen=True)
class BuildReply:
    """`covered` is false for a case that the implementation does not take."""

    covered: bool


@dataclass(frozen=True)
class DescribeRequest:
    """Load a file that defines an operation, and describe its cases: `shapes`, or those of the file, in `dtypes`."""

    source: Source
    shapes: tuple[str, ...]
    dtypes: tuple[str, ...]

    @property
    def implementation(self) -> str:
        """The name to which a failure is attributed."""
        return self.source.name


@dataclass(frozen=True)
class DescribeReply:
    """The operation that the file defines."""

    about: About


@dataclass(frozen=True)
class PeaksRequest:
    """Measure the peaks of the device called `name`, for its file of limits."""

    name: str

    @property
    def implementation(self) -> str:
        """The name to which a failure is attributed."""
        return "the measurement of limits"


@dataclass(frozen=True)
class PeaksReply:
    """The contents of the file as JSON, without the environment record."""

    contents: str


@dataclass(frozen=True)
class CheckReply:
    """The outcome of the checked call. Each field is the column of `Row` with the same name."""

    status: Literal["ok", "wrong", "unsupported"]
    reason: str
    first_call_s: float | None = None
    error_ratio: float | None = None
    max_ulp: float | None = None
    max_rel: float | None = None
    rms: float | None = None
    deterministic: str = ""
    config: str = ""
    compile_cache: str = ""
    diagnosis: str = ""
    error_map: str = ""
    weak_bound: float | None = None
    weakness: str = ""
    judged: int | None = None


@dataclass(frozen=True)
class ProbeReply:
    """The probe result. Each field is the column of `Row` with the same name."""

    status: Literal["ok", "wrong"]
    reason: str
    checked: str
    diagnosis: str = ""
    error_map: str = ""


@dataclass(frozen=True)
class TimingColumns:
    """The times of one implementation. Each field is the field of `Row` with the same name."""

    reason: str
    remarks: str
    recorder: str
    cache: str
    samples: int
    stopped_by: str
    threads: int | None = None
    device_us: float | None = None
    device_us_low: float | None = None
    device_us_high: float | None = None
    sample_us: tuple[float, ...] = ()
    vs_best: float | None = None
    vs_best_low: float | None = None
    vs_best_high: float | None = None
    latency_us: float | None = None
    dispatch_us: float | None = None
    graph_us: float | None = None
    kernels: float | None = None
    kernels_run: str = ""
    kernel_details: str = ""
    occupancy: float | None = None
    clock_sm_mhz: float | None = None
    clock_of_max: float | None = None
    temperature_c: float | None = None
    power_w: float | None = None
    clock_reasons: str = ""
    clocks_lowered: bool = False
    peak_bytes: int | None = None
    to_device_us: float | None = None
    to_device_pinned_us: float | None = None
    to_host_us: float | None = None
    to_host_pinned_us: float | None = None
    judged: int = 0
    """Calls whose results were judged while timed."""
    product_us: float | None = None
    communication_us: float | None = None
    exposed_us: float | None = None


@dataclass(frozen=True)
class TimeReply:
    """The times by implementation name: one entry for each implementation of the request."""

    timings: Mapping[str, TimingColumns]


@dataclass(frozen=True)
class SustainReply:
    """The numbers of one implementation under a steady load, by the names of the columns of `Row`."""

    columns: Mapping[str, float | None]


@dataclass(frozen=True)
class TimingFailed:
    """The reply without times: one implementation failed, or some gave wrong results while they were timed.

    `implementation` is the one that was running; None during the suite's own work. `wrong` has the reason of each
    implementation whose results are wrong.
    """

    status: Literal["error", "wrong", "timeout"]
    reason: str
    implementation: str | None
    wrong: Mapping[str, str] = field(default_factory=dict)
    from_outside: bool = False
    """True if a signal from another process, or from the system, has ended an external process."""


@dataclass(frozen=True)
class TunedKernel:
    """The fastest configuration found for one key of an autotuner."""

    entry: Entry
    config: str
    """The configuration as text: `BLOCK_M=128, num_warps=8`."""
    short_list: str
    """The configuration that the autotuner had chosen from its own short list."""
    failed: int
    """Configurations that did not compile or launch."""
    wrong: int
    """Faster configurations that do not agree."""


@dataclass(frozen=True)
class TuneReply:
    """One `TunedKernel` for each autotuner key that a call looks up; none for a call without autotuners."""

    status: Literal["ok", "unsupported"]
    reason: str = ""
    found: tuple[TunedKernel, ...] = ()


@dataclass(frozen=True)
class Failed:
    """The request raised an exception. `implementation` is the one that was running; None during the suite's own work.

    `timeout` and `from_outside` describe the end of an external process.
    """

    reason: str
    implementation: str | None
    status: Literal["error", "timeout"] = "error"
    from_outside: bool = False


@dataclass(frozen=True)
class Ready:
    """The worker has started and waits for requests."""


Request = (
    CheckRequest
    | ProbeRequest
    | TimeRequest
    | TimeExternalRequest
    | SustainRequest
    | TuneRequest
    | BuildRequest
    | DescribeRequest
    | PeaksRequest
)
Reply = (
    CheckReply
    | ProbeReply
    | TimeReply
    | TimingFailed
    | SustainReply
    | TuneReply
    | BuildReply
    | DescribeReply
    | PeaksReply
    | Failed
)


@dataclass(frozen=True)
class Done:
    """The request is finished."""

    reply: Reply


Event = Ready | Started | Done
REPLIES: Mapping[type, tuple[type, ...]] = {
    CheckRequest: (CheckReply, Failed),
    ProbeRequest: (ProbeReply, Failed),
    TimeRequest: (TimeReply, TimingFailed),
    TimeExternalRequest: (TimeReply, TimingFailed),
    SustainRequest: (SustainReply, Failed),
    TuneRequest: (TuneReply, Failed),
    BuildRequest: (BuildReply, Failed),
    DescribeRequest: (DescribeReply, Failed),
    PeaksRequest: (PeaksReply, Failed),
}


def encode(message: Request | Event) -> bytes:
    """A message as one line of JSON."""
    return json.dumps(to_json(message)).encode() + b"\n"


def decode(line: bytes) -> Request | Event:
    """The inverse of `encode`. Raises `ProtocolError` unless `line` is JSON with exactly the declared fields."""
    try:
        data = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"message: not JSON: {error}") from error
    message: Request | Event = from_json(Request | Event, data)
    return message


def encode_numbered(message: Request | Event, number: int) -> bytes:
    """A message as one line: the number of its request, and the JSON."""
    return b"%d %b" % (number, encode(message))


def decode_numbered(line: bytes) -> tuple[int, Request | Event]:
    """The inverse of `encode_numbered`. Raises `ProtocolError` as `decode` does, and for a line without a number."""
    number, _, rest = line.partition(b" ")
    if not number.isdigit() or len(number) > 18:
        raise ProtocolError("message: it does not begin with the number of a request")
    return int(number), decode(rest)
