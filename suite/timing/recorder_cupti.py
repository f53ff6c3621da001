"""CUPTI's activity records: what the device ran, and when, by its own clock.

One recorder for every framework: torch, Triton, JAX and CUDA through ctypes launch into the same context, and the
records are made below all of them. A sample is a window of CUPTI's clock, in which the device is idle at both ends:

    evict the cache | synchronize | quiet | OPEN | issue, wait | synchronize | quiet | CLOSE

Everything that starts in the window belongs to the call, whichever thread launched it. The quiet spells, and what the
host needs for a launch, are wider than the error of CUPTI's conversion from device to host time, so that an edge never
falls on an activity.

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
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Any

from suite.timing.cupti_records import Cupti, Record, loaded_library
from suite.timing.intervals import Activity, NoRecorderError, RecorderError, Window, assign, union_ns
from suite.timing.recorder import Sample
from suite.timing.stats import median

CONCURRENT, ONE_AT_A_TIME = "CONCURRENT_KERNEL", "KERNEL"
PROBES = 9
"""Samples of that kernel, in either way."""
KINDS = {CONCURRENT: "kernel", "MEMCPY": "memcpy", "MEMCPY2": "memcpy", "MEMSET": "memset"}
BUFFER_BYTES = 1 << 20
"""Room for some thousand records. CUPTI asks for another buffer when one is full, so nothing drops; it clears each, so
larger ones only make every flush dearer."""
QUIET_NS = 1_000
"""On an H200 a kernel starts 7 us or more after the stamp before it and ends 0.9 us or more before the stamp after it,
without any wait; the spell before a stamp doubles the latter."""
WAITS_S = (0.0002, 0.001, 0.005)
"""CUPTI finishes its records on a thread of its own, at times after the device is known to be idle."""
INSTALL = "pip install 'cupti-python==13.0.*' (the major version of the driver's CUDA)"


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
    """Busy time of the device: the union of the intervals of every kernel, copy and fill in a sample's window.

    `probe` launches a kernel that does next to nothing.
    """

    name = "cupti"

    def __init__(
        self,
        synchronize: Callable[[], None],
        probe: Callable[[], None],
        cupti: Any = None,
        quiet_ns: int = QUIET_NS,
    ) -> None:
        self._synchronize = synchronize
        self._probe = probe
        self._cupti = cupti
        self._quiet_ns = quiet_ns
        self._subscriber: int | None = None
        self._enabled: list[Any] = []
        self._names: dict[int, str] = {}
        self._windows: list[Window] = []
        self._records: list[Activity] = []
        self._failure: BaseException | None = None
        self._excess_ns = 0

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
        self._names[int(kind)] = label

    def stop(self) -> None:
        """Stop tracing and let go of CUPTI, so that this process, or another tool in it, goes on undisturbed."""
        try:
            if self._enabled:
                self._synchronize()
                self._cupti.activity_flush_all(1)
        finally:
            self._undo()
            self._windows, self._records, self._failure = [], [], None

    def sample(self, name: str, prepare: Callable[[], None], run: Callable[[], None]) -> None:
        begin = self._stamp(0)
        prepare()
        self._synchronize()
        middle = self._stamp(self._quiet_ns)
        run()
        self._synchronize()
        end = self._stamp(self._quiet_ns)
        for label, opened, closed in ((None, begin, middle), (name, middle, end)):
            _same_pace(opened, closed)
            self._windows.append(Window(label, opened[1], closed[1]))

    def collect(self) -> list[Sample]:
        """Deliver the records and turn them into samples. Raises `RecorderError` if they cannot be trusted."""
        found = self._delivered(0)
        for wait_s in WAITS_S:
            if not _some_missing(self._windows, found):
                break
            time.sleep(wait_s)
            found = self._delivered(0)
        if _some_missing(self._windows, found):
            found = self._delivered(1)  # also buffers CUPTI holds back because a record in them is not finished
        samples = [
            Sample(window.name, union_ns([activity[1:3] for activity in part]) / 1000, part)
            for window, part in zip(self._windows, found, strict=True)
            if window.name is not None
        ]
        self._windows, self._records = [], []
        return samples

    def _delivered(self, flag: int) -> list[list[Activity]]:
        self._flush(flag)
        return assign(self._records, self._windows)

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

    def _buffer_completed(self, records: Iterable[Record]) -> None:
        """Called by CUPTI, on any thread."""
        try:
            names, excess, keep = self._names, self._excess_ns, self._records.append
            for number, start, end, name, of_graph in records:
                kind = names.get(number)
                if kind == "kernel":
                    keep(Activity(name, start, max(end - excess, start), kind, of_graph))
                elif kind is not None:
                    keep(Activity(kind, start, end, kind, of_graph))
        except BaseException as error:  # it could not cross CUPTI's C frames; `_flush` raises it
            self._failure = error

    def _stamp(self, quiet_ns: int) -> tuple[int, int, int]:
        """CUPTI's clock, after a quiet spell, between two readings of the host's."""
        clock = time.perf_counter_ns
        before = clock()
        until = before + quiet_ns
        while before < until:
            before = clock()
        stamp = self._now()
        return before, stamp, clock()

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


def _some_missing(windows: Sequence[Window], found: Sequence[Sequence[Activity]]) -> bool:
    """Whether a call has no activity, or a preparation has none where others have."""
    prepared = [bool(part) for window, part in zip(windows, found, strict=True) if window.name is None]
    called = [bool(part) for window, part in zip(windows, found, strict=True) if window.name is not None]
    return not all(called) or (any(prepared) and not all(prepared))


def _same_pace(opened: tuple[int, int, int], closed: tuple[int, int, int]) -> None:
    """Raise `RecorderError` if CUPTI's clock and the host's disagree on how long a window was: one of them jumped."""
    length = closed[1] - opened[1]
    shortest, longest = closed[0] - opened[2], closed[2] - opened[0]
    slack = 10_000 + longest // 100
    if not shortest - slack <= length <= longest + slack:
        raise RecorderError(f"the recorder's clock jumped: it moved {length} ns while the host's moved {longest} ns")


def _say(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
