"""Calls in an external process, in the form that the check and the timing of this process expect of local calls.

Inputs and results are in memory that both processes map. Nothing that the external process writes there is trusted:
inputs are compared with copies that it cannot reach, and a result is copied before it is read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

import torch

from suite import hardware
from suite.checking.calls import RefusedError
from suite.checking.memory import whole_storage
from suite.checking.rounds import Tensors
from suite.external import protocol as p
from suite.external.process import ExternalProcess, RaisedError, call_ns
from suite.external.shared_memory import Shared, allocate, describe
from suite.hardware.occupancy import Limits
from suite.implementations.identity import Reference
from suite.problem.outputs import judged_dtype
from suite.timing.call import Call
from suite.timing.intervals import Activity, Launch, NoRecorderError, RecorderError
from suite.timing.recorder import Recorder, Sample
from suite.timing.sampling import Sampled
from suite.timing.target import Target

if TYPE_CHECKING:
    from suite.checking.problem import Problem


class SharedCase:
    """One case in memory that an external process maps too: `problem` has its inputs, `result` receives results.

    `beside`: the case of another process. Both share the inputs; each has its own memory for results.
    """

    def __init__(self, process: ExternalProcess, problem: Problem, beside: SharedCase | None = None) -> None:
        self.process, self._device = process, problem.device
        self._memory: list[Shared] = []
        self._addresses: dict[int, int] = {}
        late = self._device.type == "cuda"
        if beside is None:
            self.problem = problem.with_buffers(self._allocate)
            self.staged = problem.with_buffers(self._allocate).buffers if late else ()
        else:
            self.problem, self.staged = beside.problem, beside.staged
            for each in beside._memory[:-1]:  # the last is its result's
                self._add(each)
        dtype = getattr(torch, problem.output_dtype)
        elements = torch.Size(problem.output_shape).numel()
        memory = self._allocate(elements * dtype.itemsize, 0)
        self.result = memory.view(dtype).view(problem.output_shape)
        hold = p.Hold(
            problem.case,
            tuple(each.block for each in self._memory),
            self._described(self.problem.buffers),
            self._described(self.staged),
            self._described([self.result])[0],
            problem.output_shapes,
            problem.output_dtypes,
        )
        process.ask(hold, p.Finished, [each.descriptor for each in self._memory if each.descriptor is not None])

    @property
    def has_results_of_one_type(self) -> bool:
        """True if delivering results converts none of them: they have one type."""
        return len({judged_dtype(dtype) for dtype in self.problem.output_dtypes}) == 1

    def _allocate(self, nbytes: int, block: int) -> torch.Tensor:
        shared = allocate(nbytes, self._device, block)
        self._add(shared)
        return shared.bytes

    def _add(self, shared: Shared) -> None:
        self._addresses.setdefault(shared.bytes.untyped_storage().data_ptr(), len(self._memory))
        self._memory.append(shared)

    def _described(self, tensors: Sequence[torch.Tensor]) -> tuple[p.Operand, ...]:
        return tuple(describe(each, self._addresses[each.untyped_storage().data_ptr()]) for each in tensors)

    def release(self) -> None:
        self.process.ask(p.Release(), p.Finished)


@dataclass
class RemoteResult:
    """The result of a call of the check: the number of the call, and the memory use that the process reports."""

    case: SharedCase
    number: int
    early: torch.Tensor
    ranges: tuple[tuple[int, int], ...]
    alias: int | None
    unfinished: bool
    spilled: bool

    def now(self) -> torch.Tensor:
        self.case.process.ask(p.Deliver(self.number), p.Delivered)
        return self.case.result.clone()


class RemoteCaller:
    """Makes the calls of the check."""

    def __init__(self, case: SharedCase, implementation: Reference, *, telling: bool = False) -> None:
        self._case, self._implementation, self._telling, self._count = case, implementation, telling, 0

    def call(self, draw: int, *, late: bool = False, again: bool = False) -> RemoteResult:
        case, late = self._case, late and bool(self._case.staged)
        if late:
            for staged, given in zip(case.staged, case.problem.draws[draw], strict=True):
                whole_storage(staged).copy_(whole_storage(given))
        else:
            case.problem.present(draw)
        called = case.process.ask(p.Check(self._implementation, late, again, self._telling), p.Called)
        if called.refusal:
            raise RefusedError(called.refusal)
        number = self._count
        self._count += not again
        return RemoteResult(
            case,
            number,
            case.result.clone(),
            called.ranges,
            called.alias,
            called.unfinished,
            called.spilled,
        )


@dataclass(frozen=True, kw_only=True)
class RemoteCall(Call):
    """A call that is bound in an external process. Each runs to its end before this process goes on."""

    process: ExternalProcess

    def spans(self, clock: Callable[[], int]) -> tuple[float, float]:
        """Times by the external process's clock, or by this process's clock if that shows more."""
        return self._run(1, clock)

    def loop(self, count: int, clock: Callable[[], int]) -> float:
        return self._run(count, clock)[0] / count

    def _run(self, count: int, clock: Callable[[], int]) -> tuple[float, float]:
        begin = clock()
        ran = self.process.ask(p.Run(self.name, count), p.Ran)
        ready = call_ns(ran.ready_ns, clock() - begin, self.process.handoff_ns)
        return max(0.0, min(ran.issued_ns, ready)), ready

    def repeat(self, count: int) -> object:
        return self.process.ask(p.Run(self.name, count), p.Ran)


def remote_call(process: ExternalProcess, name: str, *, vendor: bool) -> RemoteCall:
    """The call of the implementation that is bound in `process` under `name`."""
    return RemoteCall(name, lambda: process.ask(p.Run(name, 1), p.Ran), lambda ran: None, vendor, process=process)


class RemoteTarget:
    """The device on which calls run in external processes. The clock and the readings of the device are this process's.

    This process also evicts the cache, which the processes of a device share: an external process has nothing to do
    between its inputs and its call.
    """

    def __init__(self, local: Target, recorder: Recorder) -> None:
        self.on_host, self.cache_bytes = local.on_host, local.cache_bytes
        self._local, self._recorder = local, recorder

    def clock(self) -> int:
        return perf_counter_ns()

    def synchronize(self) -> None:
        """Every command ends when the device is idle."""

    def evict(self) -> None:
        self._local.evict()
        self._local.synchronize()

    def kept_cache(self) -> str:
        """The external process itself looks for such a setting, after each call."""
        return ""

    def give_cache_back(self) -> None:
        """The external process itself gives it back, before each sample."""

    def recorder(self) -> Recorder:
        return self._recorder

    def state(self) -> hardware.State | None:
        return self._local.state()

    def energy_mj(self) -> int | None:
        return self._local.energy_mj()

    def limits(self) -> Limits | None:
        return self._local.limits()


class RemoteRecorder:
    """Takes samples on the GPU of an external process, by its recorder, which was bound before the file was loaded.

    A sample of the file `own` includes what the device does for its process from the time when its inputs are written
    until this process has its result, but for copies of the result. Early work beside other calls of the same round
    counts too. `idle_before`: the process has no work of the suite before a call; `idle_after`: none after it.
    """

    name = "cupti"

    def __init__(
        self,
        process: ExternalProcess,
        results: RemoteResults,
        own: str,
        *,
        idle_before: bool,
        idle_after: bool,
    ) -> None:
        self._process, self._results, self._own = process, results, own
        self._idle_before, self._idle_after = idle_before, idle_after
        self._early_us = 0.0

    def start(self) -> None:
        try:
            self._process.ask(p.StartRecorder(), p.Finished)
        except RaisedError as error:
            raise NoRecorderError(str(error)) if error.kind == "no recorder" else error from None

    def stop(self) -> None:
        self._process.ask(p.StopRecorder(), p.Finished)

    def serialize_kernels(self) -> None:
        self._ask(p.Serialize(), p.Finished)

    def sample(self, name: str, prepare: Callable[[], None], run: Callable[[], None]) -> None:
        """The external process makes the call of that name in place of `run`, which gets the time of its return."""
        self._process.ask(p.Record(name), p.Finished)
        prepare()
        begin = perf_counter_ns()
        ran = self._process.ask(p.Go(), p.Ran)
        span = perf_counter_ns() - begin
        self._results.refusals[name] = self._process.answer(p.Delivered).refusal
        if isinstance(run, Sampled):
            run.issue_us = min(ran.issued_ns, span) / 1000

    def collect(self) -> list[Sample]:
        collected = self._ask(p.Collect(), p.Collected)
        latest = {each.name: each.activities for each in collected.latest}
        return [
            Sample(each.name, self._whole_us(each), SampleActivities(each.activities, latest[each.name]))
            for each in collected.samples
        ]

    def _whole_us(self, sample: p.Recorded) -> float:
        """The time of a sample with the work of the file before and after its call."""
        if self._idle_before:
            self._early_us += sample.before_us
        if sample.name != self._own:
            return sample.us
        early_us, self._early_us = self._early_us, 0.0
        return sample.us + early_us + (sample.after_us if self._idle_after else 0.0)

    def _ask(self, command: Any, expected: Any) -> Any:
        try:
            return self._process.ask(command, expected)
        except RaisedError as error:
            raise RecorderError(str(error)) if error.kind == "recorder" else error from None


class SampleActivities(Sequence[Activity]):
    """The activities of a sample: its own number of them, and the records of the latest sample of its name."""

    def __init__(self, count: int, latest: Sequence[p.Observed]) -> None:
        self._count, self._latest = count, latest

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Activity]:
        for each in self._latest:
            launch = None if each.launch is None else Launch(*vars(each.launch).values())
            yield Activity(each.name, each.start, each.end, each.kind, each.in_graph, launch)

    def __getitem__(self, index: Any) -> Any:
        return list(self)[index]


class RemoteResults:
    """The results of samples. The process copies each to the result's memory as soon as its span has ended."""

    def __init__(self, case: SharedCase, names: Sequence[str]) -> None:
        self.names, self.kept_bytes = tuple(names), case.result.nbytes
        self.refusals: dict[str, str] = {}
        self._case = case

    def latest(self, name: str, result: object) -> Tensors:
        if self.refusals[name]:
            raise RefusedError(self.refusals[name])
        return (self._case.result,)

    def run(self, name: str) -> None:
        """Make one more call. Used if no recorder takes samples."""
        self._case.process.ask(p.Run(name, 1, keep=True), p.Ran)
        self.refusals[name] = self._case.process.answer(p.Delivered).refusal

    def held(self, name: str, output: Tensors) -> Callable[[], Tensors]:
        self._case.process.ask(p.Keep(name), p.Finished)

        def read() -> Tensors:
            delivered = self._case.process.ask(p.Deliver(name), p.Delivered)
            return (self._case.result.clone() if not delivered.refusal else torch.zeros_like(self._case.result),)

        return read
