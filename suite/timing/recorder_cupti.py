"""Measures device time with CUPTI's activity records: the work that the device ran, with times of its own clock.

One recorder serves every framework: torch, Triton, JAX and CUDA through ctypes launch into the same context, and CUPTI
records below all of them. A sample is a span of CUPTI's clock with the device idle at both ends:

    evict the cache | synchronize | OPEN | issue, wait | synchronize | CLOSE

Every activity that starts in the span belongs to the call, whichever thread launched it. Work between two samples (new
inputs, copies of results) counts as part of the next preparation, or of a last span after all samples of a batch;
neither is used. The device time of the sample is the union of the intervals of its activities. A span from first start
to last end would be too long, because tracing makes launches slower and the gaps between activities wider. For the same
reason, latency is measured while no recorder is running.

Clock offset. CUPTI converts device times to its own clock with an error that is constant for a while and differs from
process to process. On H200s, kernels appeared to end up to 1.9 us after the host had seen their completion, and in
another process copies to start 1.2 us before they were issued. The offset is therefore estimated for each batch from
the positions of the activities between the edges of their spans (`intervals.clock_offset`).

Two tracing modes. Both were compared on an H200 with times that the blocks themselves read from the device's timer
(sigmoid in bfloat16, 2^16 to 2^28 elements, 64 to 524,288 blocks):

    CONCURRENT_KERNEL   slows the kernel down by some 30 ns per thousand blocks, 1 to 5% from 2^22 elements on;
                        the record is 0.8 us longer than the kernel
    KERNEL (serialized) does not slow the kernel down; the record is 2.3 us longer than the kernel

The serialized mode has no times for kernels of CUDA graphs and would serialize kernels that overlap. Recording begins
in the concurrent mode and switches once it is known that no call has such kernels. The difference of the two constants
is measured on a kernel that does almost nothing, and subtracted.
"""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable, Iterable
from functools import cache
from itertools import repeat
from time import perf_counter_ns  # bound before any user's file can replace it
from typing import Any

import numpy as np
from numpy.typing import NDArray

from suite.timing.cupti_records import RECORD, UNKNOWN_DEVICE, Activities, Cupti, Table, loaded_library
from suite.timing.intervals import (
    NoRecorderError,
    RecorderError,
    assign_spans,
    clock_offset,
    covered_ns,
)
from suite.timing.recorder import Sample
from suite.timing.stats import median

PREPARE, CALL, DELIVER, REST = range(4)
"""Kinds of spans. A sample has a PREPARE and a CALL, and may have a DELIVER. REST follows the last one of a batch."""
TAKEN = bytes((PREPARE, CALL))
"""The spans of one sample."""
Stamp = tuple[int, int, int]
"""Host clock, CUPTI clock, host clock, read one after the other, in ns."""
CONCURRENT, SERIALIZED = "CONCURRENT_KERNEL", "KERNEL"
PROBES = 9
"""Samples of the probe kernel in each tracing mode."""
KINDS = {CONCURRENT: "kernel", "MEMCPY": "memcpy", "MEMCPY2": "memcpy", "MEMSET": "memset"}
BUFFER_BYTES = 1 << 20
"""Space for a few thousand records. CUPTI requests another buffer when one is full, so no record is lost. CUPTI clears
every buffer, so larger ones make each flush slower."""
RETRY_WAITS_S = (0.0002, 0.001, 0.005)
"""Waits for records that are not complete yet. Then a forced flush delivers incomplete records without an end."""
INSTALL = "pip install 'cupti-python==13.0.*' (the major version of the driver's CUDA)"


@cache
def load() -> Any:
    """The module `cupti.cupti` with records read in place. Raises `NoRecorderError`."""
    try:
        from cupti import cupti
    except ImportError as error:
        raise NoRecorderError(f"cupti-python cannot be imported ({error}): {INSTALL}") from error
    try:
        cupti.get_timestamp()  # loads libcupti.so
    except Exception as error:
        raise NoRecorderError(f"CUPTI cannot be used here: {_describe(error)}") from error
    return Cupti(cupti, loaded_library())


def unavailable_reason() -> str:
    """The reason why CUPTI cannot record in this process; empty if it can."""
    recorder = CuptiRecorder(synchronize=lambda: None, probe=lambda: None)
    try:
        recorder.start()
        recorder.stop()
    except NoRecorderError as error:
        return str(error)
    return ""


class CuptiRecorder:
    """Records the device's busy time: the union of the intervals of all kernels, copies and fills of a call.

    `synchronize` waits until the device is idle. `probe` launches a kernel that does almost nothing. `device` is the
    device's index in the CUDA program; work on other devices is not counted. None counts every device. `cupti` replaces
    the module `cupti.cupti`, for tests.
    """

    name = "cupti"

    def __init__(
        self,
        synchronize: Callable[[], None],
        probe: Callable[[], None],
        cupti: Any = None,
        device: int | None = None,
    ) -> None:
        self._synchronize = synchronize
        self._probe = probe
        self._device = device
        self._cupti = cupti
        self._subscriber: int | None = None
        self._enabled: list[Any] = []
        self._labels: dict[int, str] = {}
        self._taken: list[str] = []
        self._stamps: list[int] = []
        """One `Stamp` after another."""
        self._kinds = bytearray()
        """The kind of each span between two stamps."""
        self._delivering = threading.Lock()
        self._arrived: list[Table] = []
        """Tables that CUPTI has delivered since `_take_arrived`. Any thread may deliver; a lock guards the list."""
        self._records = np.empty(0, RECORD)
        """The records of the current batch."""
        self._failure: BaseException | None = None
        self._excess_ns = self._offset_ns = 0

    def start(self) -> None:
        """Subscribe and start tracing. Raises `NoRecorderError` if CUPTI is missing or used by another tool."""
        cupti = self._cupti = self._cupti or load()
        self._now = cupti.get_timestamp
        try:
            self._subscriber = self._subscribe(cupti)
            cupti.activity_register_callbacks(_buffer_requested, self._buffer_completed)
            for attribute, label in KINDS.items():
                self._enable(attribute, label)
        except Exception as error:  # cuptiError, or the binding's errors for a missing driver or library
            self._undo()
            if isinstance(error, NoRecorderError):
                raise
            raise NoRecorderError(f"CUPTI cannot trace here: {_describe(error)}") from error

    def serialize_kernels(self) -> None:
        """Switch to the serialized mode. Call once, directly after `collect`. Raises `RecorderError`."""
        before = self._probe_time_ns()
        kind = getattr(self._cupti.ActivityKind, CONCURRENT)
        try:
            self._cupti.activity_disable(kind)
            self._enabled.remove(kind)
            self._enable(SERIALIZED, "kernel")
        except Exception as error:  # cuptiError
            raise RecorderError(f"CUPTI cannot trace kernels one at a time: {_describe(error)}") from error
        self._excess_ns = max(0, self._probe_time_ns() - before)

    def _probe_time_ns(self) -> int:
        for _ in range(PROBES):
            self.sample("probe", lambda: None, self._probe)
        return round(1000 * median([sample.us for sample in self.collect()]))

    def _enable(self, attribute: str, label: str) -> None:
        kind = getattr(self._cupti.ActivityKind, attribute)
        self._cupti.activity_enable(kind)
        self._enabled.append(kind)
        self._labels[int(kind)] = label

    def stop(self) -> None:
        """Stop tracing and unsubscribe, so that another tool can use CUPTI in this process."""
        try:
            if self._enabled:
                self._synchronize()
                self._cupti.activity_flush_all(1)
        finally:
            self._undo()
            self._begin_batch()
            self._take_arrived()
            self._failure = None

    def sample(self, name: str, prepare: Callable[[], None], run: Callable[[], None]) -> None:
        first = () if self._taken else self._stamp()
        prepare()
        self._synchronize()
        middle = self._stamp()
        run()
        self._synchronize()
        self._stamps += *first, *middle, *self._stamp()
        self._kinds += TAKEN
        self._taken.append(name)

    def deliver(self, run: Callable[[], None]) -> None:
        """Call `run`, which hands out the result of the latest sample. Its work is recorded apart from the call's."""
        run()
        self._synchronize()
        self._stamps += self._stamp()
        self._kinds.append(DELIVER)

    def _stamp(self) -> Stamp:
        return perf_counter_ns(), self._now(), perf_counter_ns()

    def collect(self) -> list[Sample]:
        """Flush the records and convert them to samples. Raises `RecorderError` if they are inconsistent."""
        if self._taken:
            self._synchronize()
            self._stamps += self._stamp()  # ends the span of the work after the last call
            self._kinds.append(REST)
        edges = _cupti_times(np.array(self._stamps, np.int64).reshape(-1, 3))
        kinds = np.array(self._kinds, np.uint8)
        records, span = self._delivered(0, edges, kinds)
        for wait_s in RETRY_WAITS_S:
            if not _some_missing(span, kinds):
                break
            time.sleep(wait_s)
            records, span = self._delivered(0, edges, kinds)
        if _some_missing(span, kinds):
            records, span = self._delivered(1, edges, kinds)  # forced: also records behind an incomplete one
        samples = self._samples(records, kinds[span], np.cumsum(kinds == PREPARE)[span] - 1)
        self._begin_batch()
        return samples

    def _samples(self, records: Table, kind: NDArray[Any], sample: NDArray[Any]) -> list[Sample]:
        """The samples of the batch. `kind` and `sample` are those of the span of each record."""
        starts, ends, count = records["start"], records["end"], len(self._taken)
        of_call = np.flatnonzero(kind == CALL)
        delivered = np.flatnonzero(kind == DELIVER)
        if len(delivered):
            copies = [each for each, label in self._labels.items() if label == "memcpy"]
            delivered = delivered[~np.isin(records["kind"][delivered], copies)]
        chosen = of_call, np.flatnonzero(kind == PREPARE), delivered
        busy_us = [_busy_us(starts[which], ends[which], sample[which], count) for which in chosen]
        calls = records[of_call]
        bounds = np.searchsorted(sample[of_call], np.arange(count + 1)).tolist()
        activities = map(Activities, repeat(calls), repeat(self._labels), bounds[:-1], bounds[1:])
        us, before_us, after_us = busy_us
        return list(map(Sample, self._taken, us, activities, before_us, after_us))

    def _begin_batch(self) -> None:
        """Begin a new batch. Records that arrive from now on belong to it."""
        self._taken, self._stamps, self._kinds, self._records = [], [], bytearray(), np.empty(0, RECORD)

    def _take_arrived(self) -> list[Table]:
        with self._delivering:
            arrived, self._arrived = self._arrived, []
        return arrived

    def _delivered(self, flag: int, edges: NDArray[Any], kinds: NDArray[Any]) -> tuple[Table, NDArray[Any]]:
        """The records, sorted by start, and the index of the span of each. `kinds` are those of the spans."""
        self._flush(flag)
        arrived = [table for table in (self._records, *self._take_arrived()) if len(table)]
        records = arrived[0] if len(arrived) == 1 else np.concatenate([self._records, *arrived])
        starts = records["start"]
        if (starts[1:] < starts[:-1]).any():
            records = records[np.argsort(starts, kind="stable")]
        self._records = records

        def activity(i: int) -> str:
            [found] = Activities(records, self._labels, i, i + 1)
            return found.kind if found.name == found.kind else f"{found.kind} {found.name[:80]!r}"

        def span(i: int) -> str:
            if self._kinds[i] != CALL:
                return "a preparation"
            return f"the call of {self._taken[self._kinds.count(CALL, 0, i)]!r}"

        starts, ends = (np.ascontiguousarray(records[each]) for each in ("start", "end"))
        self._offset_ns = clock_offset(starts, ends, edges, self._offset_ns, kinds == CALL)
        return records, assign_spans(starts, ends, edges - self._offset_ns, activity, span)

    def _flush(self, flag: int) -> None:
        self._synchronize()
        try:
            self._cupti.activity_flush_all(flag)
            dropped = ctypes.c_size_t(0)
            self._cupti.activity_get_num_dropped_records(0, 0, ctypes.addressof(dropped))
        except Exception as error:
            raise RecorderError(f"CUPTI could not deliver its records: {_describe(error)}") from error
        if self._failure is not None:
            raise RecorderError(f"reading CUPTI's records failed: {_describe(self._failure)}") from self._failure
        if dropped.value:
            raise RecorderError(f"CUPTI dropped {dropped.value} records for want of buffers")

    def _buffer_completed(self, tables: Iterable[Table]) -> None:
        """CUPTI's callback, on any thread. Keeps the device's records of the enabled kinds.

        In the serialized mode, their times are corrected.
        """
        try:
            for table in tables:
                label = self._labels.get(int(table["kind"][0]))
                if label is None:
                    continue
                if self._device is not None:
                    devices = table["device"]
                    table = table[(devices == self._device) | (devices == UNKNOWN_DEVICE)]
                if label == "kernel" and self._excess_ns:
                    ends = table["end"]
                    ends[:] = np.maximum(ends - self._excess_ns, np.minimum(table["start"], ends))
                with self._delivering:
                    self._arrived.append(table)
        except BaseException as error:  # cannot propagate through CUPTI's C frames; `_flush` raises it
            self._failure = error

    def _subscribe(self, cupti: Any) -> int:
        """Become the only CUPTI subscriber of the process, so that no other tool shares the buffers."""
        params = cupti.SubscriberParams()
        params.struct_size = cupti.SUBSCRIBER_PARAMS_SIZE
        params.subscriber_name = "suite.timing"
        self._params = params  # must live until the call returns
        try:
            return int(cupti.subscribe_v2(_no_callback, None, params.ptr))
        except cupti.cuptiError as error:
            if getattr(error, "status", None) != cupti.Result.ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED:
                raise
            holder = (params.old_subscriber_name or "a profiler or debugger").removeprefix("CUPTI for ")
            raise NoRecorderError(
                f"CUPTI is in use by {holder}, and a process has one user of it at a time: "
                "leave torch.profiler, or run outside Nsight and compute-sanitizer, then measure again"
            ) from error

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
    """Size of a buffer in bytes, and the largest number of records in it (0: no limit)."""
    return BUFFER_BYTES, 0


def _no_callback(*_: Any) -> None:
    """Subscribing requires a callback; none is enabled."""


def _busy_us(starts: NDArray[Any], ends: NDArray[Any], sample: NDArray[Any], count: int) -> list[float]:
    """The time in us that the device was busy from `starts` to `ends`, for each of `count` samples."""
    busy_ns = np.bincount(sample, weights=covered_ns(starts, ends), minlength=count)
    found: list[float] = (busy_ns / 1000).tolist()
    return found


def _some_missing(span: NDArray[Any], kinds: NDArray[Any]) -> bool:
    """True if a call has no activity, or if one preparation (or delivery) has none while another has."""
    found = np.bincount(span, minlength=len(kinds))[: len(kinds)] > 0
    partly = (found[kinds == kind] for kind in (PREPARE, DELIVER))
    return not found[kinds == CALL].all() or any(bool(each.any() and not each.all()) for each in partly)


def _cupti_times(stamps: NDArray[Any]) -> NDArray[Any]:
    """The CUPTI times of `stamps` [readings, 3].

    Raises `RecorderError` if CUPTI's clock and the host's disagree on the length of a span: one of them jumped.
    """
    opened, closed = stamps[:-1], stamps[1:]
    length = closed[:, 1] - opened[:, 1]
    shortest, longest = closed[:, 0] - opened[:, 2], closed[:, 2] - opened[:, 0]
    slack = 10_000 + longest // 100
    for i in np.flatnonzero((length < shortest - slack) | (length > longest + slack))[:1].tolist():
        moved = f"it moved {length[i]} ns while the host's moved {longest[i]} ns"
        raise RecorderError(f"the recorder's clock jumped: {moved}")
    return stamps[:, 1]


def _describe(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
