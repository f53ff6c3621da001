"""Times calls in external processes on a CPU, by this process's clock and by bytes that this process has read.

A sample begins when the external process, until then stopped, may run, and ends when this process has read the whole
result in the memory of that process, which is stopped again. The inputs got their values and the cache was evicted
while it was stopped. A result can therefore be computed neither before its sample nor after it. The time of a call is
the process's own measurement, plus the usual rest of the span, minus the usual span of a sample without a call.
Samples without a call are taken in between, in a process that has loaded no file: they only fill their outputs.
"""

from __future__ import annotations

import errno
import math
from collections.abc import Callable, Mapping, Sequence
from time import perf_counter_ns
from typing import TYPE_CHECKING

import torch

from suite.checking.calls import RefusedError
from suite.checking.memory import is_dense
from suite.checking.rounds import Tensors
from suite.external import foreign_memory
from suite.external import protocol as p
from suite.external.process import RaisedError, check_claim
from suite.problem.outputs import joined, judged_dtype, judged_shape
from suite.timing.recorder import Sample
from suite.timing.sampling import Sampled
from suite.timing.stats import median

if TYPE_CHECKING:
    from suite.external.remote import SharedCase

EMPTY_WARM_UPS, EMPTY_SAMPLES, EMPTY_QUANTILE = 2, 9, 0.75
"""Samples without a call before a measurement, and the quantile of their times that one sample is allowed."""
EMPTY_PERIOD = 3
"""One sample in so many has a sample without a call before it, since their cost varies with the machine's load."""


class HostResults:
    """The results of samples, each read from the memory of its process within its span."""

    def __init__(self, cases: Mapping[str, SharedCase]) -> None:
        self.names = tuple(cases)
        self.refusals: dict[str, str] = {}
        self._cases = cases
        self._outputs = {name: Outputs(case) for name, case in cases.items()}

    def take(self, name: str, sampled: p.Sampled) -> None:
        """Read the result of the latest sample of `name`."""
        self.refusals[name] = sampled.refusal
        if not sampled.refusal:
            self._outputs[name].read(sampled.places)

    @property
    def kept_bytes(self) -> int:
        return max((case.result.nbytes for case in self._cases.values()), default=0)

    def latest(self, name: str, result: object) -> Tensors:
        if self.refusals[name]:
            raise RefusedError(self.refusals[name])
        return (joined(self._outputs[name].tensors()),)

    def held(self, name: str, output: Tensors) -> Callable[[], Tensors]:
        case = self._cases[name]
        case.process.ask(p.Keep(name), p.Finished)

        def read() -> Tensors:
            delivered = case.process.ask(p.Deliver(name), p.Delivered)
            return (case.result.clone() if not delivered.refusal else torch.zeros_like(case.result),)

        return read


class Outputs:
    """Memory for the outputs of a sample of `case`, as their process stores them."""

    def __init__(self, case: SharedCase) -> None:
        shapes, dtypes = case.problem.output_shapes, case.problem.output_dtypes
        self._pid = case.process.pid
        self._shapes = [judged_shape(*form) for form in zip(shapes, dtypes, strict=True)]
        self._flat = [
            torch.empty(math.prod(shape), dtype=getattr(torch, judged_dtype(dtype)))
            for shape, dtype in zip(self._shapes, dtypes, strict=True)
        ]
        self._strides: list[tuple[int, ...]] = []

    def read(self, places: Sequence[p.Place]) -> None:
        """Read the outputs. Raises `RaisedError` if that is impossible."""
        if len(places) != len(self._flat):
            raise RaisedError(p.Raised("error", f"{len(places)} outputs, expected {len(self._flat)}"))
        self._strides = [place.strides for place in places]
        try:
            for place, flat in zip(places, self._flat, strict=True):
                foreign_memory.read(self._pid, place.address, flat)
        except OSError as error:
            raise RaisedError(p.Raised("error", unread(error))) from None

    def tensors(self) -> list[torch.Tensor]:
        """The outputs that were read last. Raises `RefusedError` for strides that leave gaps or overlap."""
        return [_view(*each) for each in zip(self._flat, self._shapes, self._strides, strict=True)]


def _view(flat: torch.Tensor, shape: tuple[int, ...], strides: tuple[int, ...]) -> torch.Tensor:
    if len(strides) != len(shape) or not is_dense(shape, strides):
        raise RefusedError(f"strides: the result has strides {strides}, expected an array without gaps")
    if 0 in shape:
        return flat.view(shape)
    return flat.as_strided(shape, [stride if size > 1 else 1 for size, stride in zip(shape, strides, strict=True)])


def unread(error: OSError) -> str:
    """The reason of a row whose result could not be read."""
    reason = f"its result cannot be read in its process (process_vm_readv: {error.strerror})"
    return reason if error.errno != errno.EPERM else f"{reason}: kernel.yama.ptrace_scope must be 0 or 1"


class EmptySamples:
    """Samples without a call, with arrays of `framework`, in the process of `case`, which has loaded no file.

    They fill outputs of the case's size, whose time by that process is left out. `spans` are the other times of earlier
    ones, in ns.
    """

    def __init__(self, case: SharedCase, framework: str, evict: Callable[[], None], spans: list[float]) -> None:
        self._process, self._framework, self._evict, self.spans = case.process, framework, evict, spans
        self._outputs = Outputs(case)

    def begin(self) -> None:
        """Take the samples before a measurement, unless there are earlier ones."""
        if self.spans:
            return
        self._process.stop()
        for _ in range(EMPTY_WARM_UPS + EMPTY_SAMPLES):
            self.take()
        del self.spans[:EMPTY_WARM_UPS]
        self._process.stay_awake()

    def take(self) -> None:
        """Take one, while the process is stopped."""
        self._evict()
        begin = perf_counter_ns()
        sampled = self._process.sample(p.Sample("", self._framework))
        self._outputs.read(sampled.places)
        self.spans.append(perf_counter_ns() - begin - sampled.ready_ns)
        self._process.stop()

    @property
    def middle_ns(self) -> float:
        return median(self.spans)

    @property
    def largest_ns(self) -> float:
        """The cost that a single sample is allowed."""
        return sorted(self.spans)[int(EMPTY_QUANTILE * len(self.spans))]


class HostRecorder:
    """Takes samples in the external processes that hold `cases`, by name, and samples without a call in between.

    `empty` are these, by name. All these processes are stopped except while they make a call.
    """

    name = "wall"

    def __init__(
        self, cases: Mapping[str, SharedCase], empty: Mapping[str, EmptySamples], results: HostResults
    ) -> None:
        self._cases, self._empty, self._results = cases, empty, results
        self._taken: list[tuple[str, float, float]] = []
        """Name, claimed time and span of each sample since the last `collect`."""
        self._unclaimed: dict[str, list[float]] = {name: [] for name in cases}
        """The part of each span that the process did not claim."""
        self._count = 0

    def start(self) -> None:
        for case in self._cases.values():
            case.process.stop()

    def stop(self) -> None:
        for case in self._cases.values():
            case.process.stay_awake()

    def serialize_kernels(self) -> None: ...

    def sample(self, name: str, prepare: Callable[[], None], run: Callable[[], None]) -> None:
        """The external process makes the call of that name in place of `run`, which gets the time of its return."""
        if self._count % EMPTY_PERIOD == 0:
            self._empty[name].take()
        self._count += 1
        prepare()
        self._cases[name].process.expect_still()
        begin = perf_counter_ns()
        sampled = self._cases[name].process.sample(p.Sample(name))
        self._results.take(name, sampled)
        span = perf_counter_ns() - begin
        self._cases[name].process.stop()
        if isinstance(run, Sampled):
            run.issue_us = min(sampled.issued_ns, span) / 1000
        check_claim(sampled.ready_ns, span)
        self._taken.append((name, sampled.ready_ns, span))
        self._unclaimed[name].append(span - sampled.ready_ns)

    def collect(self) -> list[Sample]:
        taken, self._taken = self._taken, []
        return [Sample(name, self._call_ns(name, claimed, span) / 1000, None) for name, claimed, span in taken]

    def _call_ns(self, name: str, claimed: float, span: float) -> float:
        """The time of a call: its process's claim, plus the usual rest of a span, minus a sample without a call.

        The result is at least the span less the largest cost of a sample without a call.
        """
        empty = self._empty[name]
        late = max(0.0, median(self._unclaimed[name]) - empty.middle_ns)
        return max(claimed + late, span - empty.largest_ns)
