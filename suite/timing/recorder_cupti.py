"""CUPTI's activity records: what the device ran, and when, by its own clock.

One recorder for every framework: torch, Triton, JAX and CUDA through ctypes launch into the same context, and the
records are made below all of them. A sample is a span of CUPTI's clock, with the device idle at both ends:

    evict the cache | synchronize | OPEN | issue, wait | synchronize | CLOSE

Everything that starts in it belongs to the call, whichever thread launched it. CUPTI converts the device's times to its
clock with an error that is about the same for a while and differs from process to process: on H200s a kernel seemed to
end up to 1.9 us after the host had seen it done, and in another process a copy to start 1.2 us before it was issued.
So what is wrong is found out first, from where activities lie between the edges (`intervals.clocks_apart`).
What runs between two samples is counted as the second one's preparation, which nobody looks at.

Tracing costs the host time at each launch and widens the gaps between activities; that is why busy time is their union,
and why latency is never measured while this recorder is on.

CUPTI has two ways to trace a kernel, compared on an H200 with the times that blocks themselves read from the device's
timer (a sigmoid in bfloat16, 2^16 to 2^28 elements, 64 to 524,288 blocks). Traced as concurrent, the kernel itself
takes longer, by some 30 ns for every thousand blocks, 1 to 5% from 2^22 on; the record is 0.8 us longer than that.
Traced one at a time it takes what it takes without; but the record is 2.3 us longer. So kernels are traced as
concurrent only until it is known that no call has any that overlap, or that a graph launches, for which CUPTI then has
no times. The difference of the two constants is measured, on a kernel that does next to nothing, and taken off.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from suite.timing.cupti_records import RECORD, Cupti, Table, loaded_library
from suite.timing.intervals import Activity, NoRecorderError, RecorderError, assign, clocks_apart, covered_ns
from suite.timing.recorder import Sample
from suite.timing.stats import median

Stamp = tuple[int, int, int]
"""A reading of CUPTI's clock between two of the host's."""
CONCURRENT, ONE_AT_A_TIME = "CONCURRENT_KERNEL", "KERNEL"
PROBES = 9
"""Samples of that kernel, in either way."""
KINDS = {CONCURRENT: "kernel", "MEMCPY": "memcpy", "MEMCPY2": "memcpy", "MEMSET": "memset"}
BUFFER_BYTES = 1 << 20
"""Room for some thousand records. CUPTI asks for another buffer when one is full, so nothing drops; it clears each, so
larger ones only make every flush dearer."""
WAITS_S = (0.0002, 0.001, 0.005)
"""Before records are forced out: one that CUPTI has not finished by then would come without an end."""
INSTALL = "pip install 'cupti-python==13.0.*' (the major version of the driver's CUDA)"


class Activities(Sequence[Activity]):
    """The activities of one sample, made of their records when looked at: of most samples only the time is."""

    def __init__(self, records: Table, labels: Mapping[int, str]) -> None:
        self._records, self._labels = records, labels

    def __len__(self) -> int:
        return len(self._records)

    def __iter__(self) -> Iterator[Activity]:
        for kind, start, end, name, of_graph in self._records.tolist():
            label = self._labels[kind]
            yield Activity(name if label == "kernel" else label, start, end, label, of_graph)

    def __getitem__(self, index: Any) -> Any:
        return list(self)[index]


@cache
def load() -> Any:
    """The module `cupti.cupti`, its records read in place. Raises `NoRecorderError`."""
    try:
        from cupti import cupti
    except ImportError as error:
        raise NoRecorderError(f"cupti-python cannot be imported ({error}): {INSTALL}") from error
    try:
        cupti.get_timestamp()  # loads libcupti.so
    except Exception as error:
        raise NoRecorderError(f"CUPTI cannot be used here: {_say(error)}") from error
    return Cupti(cupti, loaded_library())


def why_not() -> str:
    """What keeps CUPTI's records from this process; empty if it can have them."""
    recorder = CuptiRecorder(synchronize=lambda: None, probe=lambda: None)
    try:
        recorder.start()
        recorder.stop()
    except NoRecorderError as error:
        return str(error)
    return ""


class CuptiRecorder:
    """Busy time of the device: the union of the intervals of every kernel, copy and fill of a sample's call.

    `probe` launches a kernel that does next to nothing.
    """

    name = "cupti"

    def __init__(
        self,
        synchronize: Callable[[], None],
        probe: Callable[[], None],
        cupti: Any = None,
    ) -> None:
        self._synchronize = synchronize
        self._probe = probe
        self._cupti = cupti
        self._subscriber: int | None = None
        self._enabled: list[Any] = []
        self._labels: dict[int, str] = {}
        self._taken: list[str] = []
        self._stamps: list[Stamp] = []
        self._records: list[Table] = []
        self._failure: BaseException | None = None
        self._excess_ns = self._apart_ns = 0

    def start(self) -> None:
        """Subscribe and begin to trace. Raises `NoRecorderError` if CUPTI is not there or another tool holds it."""
        cupti = self._cupti = self._cupti or load()
        self._now = cupti.get_timestamp
        try:
            self._subscriber = self._subscribe(cupti)
            cupti.activity_register_callbacks(_buffer_requested, self._buffer_completed)
            for attribute, label in KINDS.items():
                self._enable(attribute, label)
        except Exception as error:  # cuptiError, or the binding's own errors for a driver or library that is missing
            self._undo()
            if isinstance(error, NoRecorderError):
                raise
            raise NoRecorderError(f"CUPTI cannot trace here: {_say(error)}") from error

    def one_at_a_time(self) -> None:
        """From now on CUPTI traces a kernel alone; call it after `collect`, once. Raises `RecorderError`."""
        before = self._probe_ns()
        kind = getattr(self._cupti.ActivityKind, CONCURRENT)
        try:
            self._cupti.activity_disable(kind)
            self._enabled.remove(kind)
            self._enable(ONE_AT_A_TIME, "kernel")
        except Exception as error:  # cuptiError
            raise RecorderError(f"CUPTI cannot trace kernels one at a time: {_say(error)}") from error
        self._excess_ns = max(0, self._probe_ns() - before)

    def _probe_ns(self) -> int:
        for _ in range(PROBES):
            self.sample("probe", lambda: None, self._probe)
        return round(1000 * median([sample.us for sample in self.collect()]))

    def _enable(self, attribute: str, label: str) -> None:
        kind = getattr(self._cupti.ActivityKind, attribute)
        self._cupti.activity_enable(kind)
        self._enabled.append(kind)
        self._labels[int(kind)] = label

    def stop(self) -> None:
        """Stop tracing and let go of CUPTI, so that this process, or another tool in it, goes on undisturbed."""
        try:
            if self._enabled:
                self._synchronize()
                self._cupti.activity_flush_all(1)
        finally:
            self._undo()
            self._taken, self._stamps, self._records, self._failure = [], [], [], None

    def sample(self, name: str, prepare: Callable[[], None], run: Callable[[], None]) -> None:
        first = [] if self._taken else [self._stamp()]
        prepare()
        self._synchronize()
        middle = self._stamp()
        run()
        self._synchronize()
        self._stamps += *first, middle, self._stamp()
        self._taken.append(name)

    def _stamp(self) -> Stamp:
        clock = time.perf_counter_ns
        return clock(), self._now(), clock()

    def collect(self) -> list[Sample]:
        """Deliver the records and turn them into samples. Raises `RecorderError` if they cannot be trusted."""
        count = len(self._taken)
        edges = _same_pace(np.array(self._stamps, np.int64).reshape(-1, 3))
        records, span = self._delivered(0, edges)
        for wait_s in WAITS_S:
            if not _some_missing(span, count):
                break
            time.sleep(wait_s)
            records, span = self._delivered(0, edges)
        if _some_missing(span, count):
            records, span = self._delivered(1, edges)  # also what CUPTI holds back since a record is not finished
        of_calls = span % 2 == 1
        records, sample = records[of_calls], span[of_calls] // 2
        busy_ns = np.bincount(sample, weights=covered_ns(records["start"], records["end"]), minlength=count)
        bounds = np.searchsorted(sample, np.arange(count + 1)).tolist()
        samples = [
            Sample(name, us, Activities(records[first:last], self._labels))
            for name, us, first, last in zip(self._taken, (busy_ns / 1000).tolist(), bounds, bounds[1:], strict=False)
        ]
        self._taken, self._stamps, self._records = [], [], []
        return samples

    def _delivered(self, flag: int, edges: NDArray[Any]) -> tuple[Table, NDArray[Any]]:
        """The records by start, and the span of each: preparations are even, calls odd."""
        self._flush(flag)
        delivered, self._records = self._records, []
        records = np.concatenate([np.empty(0, RECORD), *delivered])
        records = records[np.argsort(records["start"], kind="stable")]
        self._records.append(records)

        def activity(i: int) -> str:
            [found] = Activities(records[i : i + 1], self._labels)
            return found.kind if found.name == found.kind else f"{found.kind} {found.name[:80]!r}"

        def span(i: int) -> str:
            return f"the call of {self._taken[i // 2]!r}" if i % 2 else "a preparation"

        self._apart_ns = clocks_apart(records["start"], records["end"], edges, self._apart_ns)
        return records, assign(records["start"], records["end"], edges - self._apart_ns, activity, span)

    def _flush(self, flag: int) -> None:
        self._synchronize()
        try:
            self._cupti.activity_flush_all(flag)
            dropped = ctypes.c_size_t(0)
            self._cupti.activity_get_num_dropped_records(0, 0, ctypes.addressof(dropped))
        except Exception as error:
            raise RecorderError(f"CUPTI could not deliver its records: {_say(error)}") from error
        if self._failure is not None:
            raise RecorderError(f"reading CUPTI's records failed: {_say(self._failure)}") from self._failure
        if dropped.value:
            raise RecorderError(f"CUPTI dropped {dropped.value} records for want of buffers")

    def _buffer_completed(self, tables: Iterable[Table]) -> None:
        """Called by CUPTI, on any thread."""
        try:
            for table in tables:
                known = table[np.isin(table["kind"], list(self._labels))]
                kernels = np.isin(known["kind"], [kind for kind, label in self._labels.items() if label == "kernel"])
                excess = np.where(kernels, self._excess_ns, 0)
                known["end"] = np.maximum(known["end"] - excess, np.minimum(known["start"], known["end"]))
                self._records.append(known)
        except BaseException as error:  # it could not cross CUPTI's C frames; `_flush` raises it
            self._failure = error

    def _subscribe(self, cupti: Any) -> int:
        """Claim CUPTI, which has one subscriber a process: without it two tools would share one set of buffers."""
        params = cupti.SubscriberParams()
        params.struct_size = cupti.SUBSCRIBER_PARAMS_SIZE
        params.subscriber_name = "suite.timing"
        self._params = params  # CUPTI keeps no copy until the call returns
        try:
            return int(cupti.subscribe_v2(_no_callback, None, params.ptr))
        except cupti.cuptiError as error:
            if getattr(error, "status", None) != cupti.Result.ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED:
                raise
            holder = (params.old_subscriber_name or "a profiler or debugger").removeprefix("CUPTI for ")
            raise NoRecorderError(f"CUPTI is taken by {holder}: run without it") from error

    def _undo(self) -> None:
        kinds, self._enabled = self._enabled, []
        subscriber, self._subscriber = self._subscriber, None
        try:
            for kind in kinds:
                self._cupti.activity_disable(kind)
        finally:
            if subscriber is not None:
                self._cupti.unsubscribe(subscriber)


def _buffer_requested() -> tuple[int, int]:
    """(bytes, records at most): 0 is as many as fit."""
    return BUFFER_BYTES, 0


def _no_callback(*_: Any) -> None:
    """No callback is ever enabled; subscribing asks for one."""


def _some_missing(span: NDArray[Any], count: int) -> bool:
    """Whether one of `count` calls has no activity, or a preparation has none where others have."""
    found = np.bincount(span, minlength=2 * count) > 0
    prepared, called = found[0::2], found[1::2]
    return not called.all() or bool(prepared.any() and not prepared.all())


def _same_pace(stamps: NDArray[Any]) -> NDArray[Any]:
    """CUPTI's readings, of `stamps` [readings, 3] that have each between two of the host's.

    Raises `RecorderError` if the two clocks disagree on how long a span was: one of them jumped.
    """
    opened, closed = stamps[:-1], stamps[1:]
    length = closed[:, 1] - opened[:, 1]
    shortest, longest = closed[:, 0] - opened[:, 2], closed[:, 2] - opened[:, 0]
    slack = 10_000 + longest // 100
    for i in np.flatnonzero((length < shortest - slack) | (length > longest + slack))[:1].tolist():
        moved = f"it moved {length[i]} ns while the host's moved {longest[i]} ns"
        raise RecorderError(f"the recorder's clock jumped: {moved}")
    return stamps[:, 1]


def _say(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
