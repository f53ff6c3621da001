"""Answers the requests of a worker: it holds one problem, and checks, times or tunes implementations on it."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from suite.core.errors import SuiteError
from suite.core.phases import Phase, Started
from suite.core.text import one_line
from suite.external.disturbance import time_file
from suite.external.pool import ExternalPool
from suite.external.process import RaisedError
from suite.external.requests import NotTimed, TimeExternalRequest
from suite.hardware.device import Device
from suite.implementations import failure, lookup
from suite.implementations.bound_call import BoundCall, bind
from suite.implementations.identity import ExternalReference, name_of
from suite.implementations.implementation import Implementation
from suite.problem.case import Case
from suite.processes.child import WorkerDiedError, WorkerTimeoutError
from suite.worker.peaks import measured_peaks
from suite.worker.protocol import (
    BuildRequest,
    CheckReply,
    CheckRequest,
    DescribeReply,
    DescribeRequest,
    Failed,
    PeaksRequest,
    ProbeReply,
    ProbeRequest,
    Reply,
    Request,
    SustainReply,
    SustainRequest,
    TimeReply,
    TimeRequest,
    TimingColumns,
    TimingFailed,
    TuneReply,
    TuneRequest,
)
from suite.worker.replies import checked_reply, declined_note, disturbing, probe_reply, timing_columns, with_transfers
from suite.worker.timed_call import timed_call

if TYPE_CHECKING:
    from suite.checking.problem import Problem
    from suite.checking.repeats import Duration
    from suite.checking.timed_inputs import TimedInputs
    from suite.external.fork_server import ExternalForkServer
    from suite.timing import Timing

REPORT_PERIOD_S = 0.5
"""Period at which `Started` is repeated while the same phase goes on."""


class Session:
    """Answers requests on one device. Keeps the inputs of the latest case and, while they fit, its truths.

    `on_started` is called with a `Started` before each phase that may hang or crash. External processes are forked
    from `fork_server`, or from a new one if it is None.
    """

    def __init__(
        self, device: Device, on_started: Callable[[Started], None], fork_server: ExternalForkServer | None = None
    ) -> None:
        import torch

        from suite import timing  # noqa: F401 (binds its clocks before a user's file is loaded)

        self.device = device
        self.torch_device = torch.device(device.type, 0) if device.type == "cuda" else torch.device("cpu")
        self.problem: Problem | None = None
        self._on_started = on_started
        self._key: tuple[Case, int] | None = None
        self._current = Started(None, Phase.STARTING)
        self._sent_at = 0.0
        self._found: dict[str, Implementation] = {}
        self._telling: dict[tuple[str, str, str, int, int, bool, bool], Mapping[str, Problem]] = {}
        self.external = ExternalPool(device, self._report, fork_server)

    def handle(self, request: Request) -> Reply:
        """The reply to a request. Exceptions of an implementation pass through, and go to `failed`."""
        self._found = {}
        match request:
            case CheckRequest(implementation=ExternalReference() as reference):
                return self.check_external(request, reference)
            case CheckRequest():
                return self.check(request)
            case ProbeRequest(implementation=ExternalReference() as reference):
                return self.probe_external(request, reference)
            case ProbeRequest():
                return self.probe(request)
            case TimeRequest():
                return self.time(request)
            case TimeExternalRequest():
                return self.time_external(request)
            case SustainRequest():
                return self._sustain(request.implementation, request)
            case TuneRequest():
                return self.tune(request)
            case BuildRequest():
                return self._build(name_of(request.implementation), request)
            case DescribeRequest():
                return self.describe(request)
            case PeaksRequest():
                return measured_peaks(request, self.torch_device, partial(self._report, None, Phase.PREPARING))

    def failed(self, request: Request, error: Exception) -> Failed | TimingFailed:
        """The reply to a request that raised.

        A `SuiteError` is attributed to no implementation, unless it came from an external process.
        """
        name = self._current.implementation
        implementation = self._found.get(name or "")
        describe = failure.describe if implementation is None else implementation.describe_error
        failing = None if isinstance(error, SuiteError) else name
        if isinstance(error, WorkerDiedError | RaisedError):
            reference = request.implementations[0] if isinstance(request, TimeRequest) else request.implementation
            reason, failing = str(error), name_of(reference)
        else:
            reason = describe(error, self.device.type)
        if self._current.phase is Phase.TELLING_CALL:
            reason += f"; in the telling case {self._current.config} (NotImplementedError says that one is not covered)"
        status: Literal["error", "timeout"] = "timeout" if isinstance(error, WorkerTimeoutError) else "error"
        outside = isinstance(error, WorkerDiedError) and error.from_outside
        if isinstance(request, TimeRequest | TimeExternalRequest):
            return TimingFailed(status, reason, failing, from_outside=outside)
        return Failed(reason, failing, status, outside)

    def check(self, request: CheckRequest) -> CheckReply:
        """Load, call and judge one implementation of the tree."""
        from suite.checking.check import check
        from suite.checking.repeats import CHECKED, IN_ORDER

        name = name_of(request.implementation)
        self._report(name, Phase.PREPARING)
        problem = self.hold(request.case, request.seed)
        implementation = self._find(name, request.case)
        in_order = implementation.adapter.mode(self.device) != "native" and not problem.op.over_ranks
        watching: list[Callable[[], str]] = []

        def load() -> Callable[..., Any]:
            function = implementation.function_for(request.case, len(problem.buffers))
            watching.append(implementation.adapter.watch_cache())  # the framework is imported by now
            return function

        try:
            result = check(
                load,
                implementation.adapter,
                problem,
                claims_determinism=implementation.deterministic,
                repeats=self.repeats(IN_ORDER if in_order else CHECKED),
                on_phase=lambda phase: self._report(name, phase),
            )
        except NotImplementedError as error:
            return CheckReply("unsupported", failure.unsupported_reason(error))
        finally:
            compile_cache = "".join(outcome() for outcome in watching)
        config = implementation.configuration(problem.buffers, problem.op.arguments(request.case))
        return checked_reply(result, (), config, compile_cache, problem.weak_bound)

    def probe(self, request: ProbeRequest) -> ProbeReply:
        """Call one implementation of the tree on telling cases.

        Its autotuned kernels keep the configuration of their last launch: the probe checks the configurations of the
        rows, and spends no time on tuning for the sizes of telling cases.
        """
        from suite.checking.repeats import TELLING_S, Duration
        from suite.checking.telling_cases import probe

        name = name_of(request.implementation)
        self._report(name, Phase.PREPARING)
        problems = self._telling_problems(request.case, request.seed, first=not request.every)
        implementation = self._find(name, request.case)
        self._report(name, Phase.FIRST_CALL)
        adapter = implementation.adapter
        with adapter.without_tuning(implementation.load()):
            result = probe(
                lambda case: self._find(name, case).function(),
                adapter,
                problems,
                self.repeats(Duration(TELLING_S / max(len(problems), 1))),
                lambda case: self._report(name, Phase.TELLING_CALL, case),
            )
        return probe_reply(result)

    def _telling_problems(self, case: Case, seed: int, *, first: bool, added: bool = False) -> Mapping[str, Problem]:
        """Telling cases, `first` or all, in the dtype and precision of `case`. The latest are kept.

        added: those with operands that only other options add too, for user files.
        """
        from suite import ops
        from suite.checking.problem import Problems
        from suite.problem.accepted_cases import added_operands, cases_for

        op = ops.operation(case)
        key = case.operation, case.dtype, case.precision, seed, added_operands(op, case)
        if any(each[:-2] != key for each in self._telling):
            self._telling.clear()
        if (*key, first, added) not in self._telling:
            found = cases_for(op, case, first=first, device_type=self.device.type, added=added)
            cases = {name: replace(each, ranks=case.ranks) for name, each in found.items()}
            self._telling[*key, first, added] = Problems(cases, lambda each: self.make_problem(each, seed))
        return self._telling[*key, first, added]

    def check_external(self, request: CheckRequest, reference: ExternalReference) -> CheckReply:
        """Call a user's file in its external process, and judge the results here."""
        from suite import frameworks
        from suite.checking.repeats import CHECKED_FILE

        self._report(reference.name, Phase.PREPARING)
        problem = self.hold(request.case, request.seed)
        try:
            found = self.external.check(reference, problem, CHECKED_FILE, request.timeout_s)
            reply = checked_reply(*found, problem.weak_bound)
        except RaisedError as error:
            if error.kind != "unsupported":
                raise
            return CheckReply("unsupported", str(error))
        if reply.status == "wrong" and frameworks.get(reference.framework).mode(self.device) != "native":
            problems = self._telling_problems(request.case, request.seed, first=False, added=True)
            fault = self.external.memory_fault(reference, problems, request.timeout_s)
            return replace(reply, diagnosis=fault or reply.diagnosis)  # says more than the values of the result
        return reply

    def probe_external(self, request: ProbeRequest, reference: ExternalReference) -> ProbeReply:
        """Call a user's file on telling cases in its external process, and then on large ones, if it runs natively."""
        from suite import frameworks, ops
        from suite.checking.problem import Problems
        from suite.checking.repeats import TELLING_FILE_S, Duration

        self._report(reference.name, Phase.PREPARING)
        problems = self._telling_problems(request.case, request.seed, first=False, added=True)
        repeats = Duration(TELLING_FILE_S / max(len(problems), 1))
        result = self.external.probe(reference, problems, repeats, request.timeout_s)
        if not result.reason and frameworks.get(reference.framework).mode(self.device) == "native":
            cases = ops.operation(request.case).large_cases(request.case.dtype, request.case.precision)
            large = Problems(cases, lambda case: self.make_problem(case, request.seed))
            result = result.then(self.external.probe(reference, large, Duration(), request.timeout_s))
        reply = probe_reply(result)
        return replace(reply, reason="; ".join(filter(None, (reply.reason, declined_note(result)))))

    def time(self, request: TimeRequest) -> TimeReply | TimingFailed:
        """Time implementations that agree, together; then judge their results of some of the rounds."""
        timings, peak_bytes, inputs = self._time_local(request)
        if wrong := inputs.judge():
            name = next(iter(wrong))
            return TimingFailed("wrong", wrong[name], name, wrong)
        where, judged = self.device.type, inputs.judged
        columns = {name: timing_columns(timings[name], peak_bytes[name], where, judged[name]) for name in timings}
        return self._with_transfers(columns, request)

    def _time_local(self, request: TimeRequest) -> tuple[dict[str, Timing], Mapping[str, int | None], TimedInputs]:
        """Times of implementations of the tree, the memory that each call takes, and the results to judge."""
        from suite import timing
        from suite.checking.timed_inputs import LocalResults, TimedInputs, keep_a_round
        from suite.timing.budgets import BUDGETS_S

        self._report(None, Phase.PREPARING)
        problem = self.hold(request.case, request.seed)
        problem.present(0)
        calls, bound_calls, peak_bytes = [], dict[str, BoundCall](), dict[str, int | None]()
        for name in request.implementations:
            self._report(name, Phase.FIRST_CALL)
            bound = bind(
                self._find(name, request.case),
                problem.buffers,
                problem.op.arguments(problem.case),
                on_built=partial(self._report, name, Phase.TIMED_CALL),
            )
            adapter = bound.implementation.adapter
            bound_calls[name] = bound
            peak_bytes[name] = adapter.peak_bytes(bound.function, bound.inputs, bound.arguments)
            calls.append(timed_call(bound, problem))

        def rebind() -> None:
            for bound in bound_calls.values():
                bound.rebind(problem.buffers)

        adapters = {name: bound.implementation.adapter for name, bound in bound_calls.items()}
        inputs = TimedInputs(problem, LocalResults(problem, adapters), rebind)
        how: dict[str, Any] = {"cache": request.cache, "max_noise": request.max_noise, "least": request.least}
        timings = timing.measure(
            calls,
            device=self.torch_device,
            budget_s=BUDGETS_S[self.device.type],
            inputs=inputs,
            on_progress=lambda name: self._report(name, Phase.TIMED_CALL),
            **how,
        )
        if not inputs.rounds:
            keep_a_round(bound_calls, inputs, lambda name: self._report(name, Phase.TIMED_CALL))
        self._report(None, Phase.JUDGING)
        return timings, peak_bytes, inputs

    def time_external(self, request: TimeExternalRequest) -> TimeReply | TimingFailed:
        """Time a user's file in its external process, beside a vendor's implementation there."""
        from suite.timing.target import target

        problem = self.hold(request.case, request.seed)
        found = time_file(self.external, request, problem, target(self.torch_device), partial(self._vendor_us, request))
        if isinstance(found, NotTimed):
            name = request.implementation.name
            wrong = {name: found.reason} if found.status == "wrong" else {}
            return TimingFailed(found.status, found.reason, name, wrong)
        columns = timing_columns(found.timing, found.peak_bytes, self.device.type, found.judged)
        columns = disturbing(columns, found.disturbance) if found.disturbance else columns
        return self._with_transfers({request.implementation.name: columns}, request)

    def _vendor_us(self, request: TimeExternalRequest) -> float:
        """Upper end of the interval of the vendor's device time in this process; 0 if it has no device time."""
        how = (request.seed, request.cache, False, request.max_noise, request.least)
        timing = self._time_local(TimeRequest(request.case, (request.vendor,), *how))[0][request.vendor]
        return timing.device_us_high or timing.device_us or 0.0

    def _with_transfers(
        self, columns: dict[str, TimingColumns], request: TimeRequest | TimeExternalRequest
    ) -> TimeReply:
        """Add the times of copies to and from the device, if the request asks for them."""
        if request.transfers:
            self._report(None, Phase.PREPARING)
            columns = with_transfers(columns, self.hold(request.case, request.seed))
        return TimeReply(columns)

    def _sustain(self, name: str, request: SustainRequest) -> SustainReply:
        from suite.worker.steady_load import steady_load

        self._report(name, Phase.PREPARING)
        problem, on_progress = self.hold(request.case, request.seed), partial(self._report, name, Phase.TIMED_CALL)
        return SustainReply(vars(steady_load(self._find(name, request.case), problem, on_progress)))

    def tune(self, request: TuneRequest) -> TuneReply | Failed:
        """Search the configurations of one implementation for the fastest that agrees."""
        from suite.worker.tuning_search import tuned

        name = name_of(request.implementation)
        self._report(name, Phase.PREPARING)
        problem = self.hold(request.case, request.seed)
        return tuned(request, self._find(name, request.case), problem, self.torch_device, partial(self._report, name))

    def _build(self, name: str, request: BuildRequest) -> Reply:
        from suite.worker.first_calls import build

        return build(self._find(name, request.case), request, self.torch_device, partial(self._report, name))

    def describe(self, request: DescribeRequest) -> DescribeReply | Failed:
        """Load a file that defines an operation, and find the form of its cases."""
        from suite.worker.description import describe

        self._report(request.implementation, Phase.PREPARING)
        try:
            report = partial(self._report, request.implementation, Phase.PREPARING)
            return DescribeReply(describe(request, self.torch_device, report))
        except SuiteError as error:
            return Failed(one_line(error), None)

    def hold(self, case: Case, seed: int) -> Problem:
        """The problem of a case. Its inputs are made anew unless the previous request had the same case and seed."""
        if self.problem is None or self._key != (case, seed):
            self._release()
            self.problem = self.make_problem(case, seed)
            self._key = (case, seed)
        return self.problem

    def make_problem(self, case: Case, seed: int) -> Problem:
        from suite.checking.problem import Problem

        return Problem(case, seed, self.torch_device)

    def repeats(self, duration: Duration) -> Duration:
        """The time for which a checked call is repeated here."""
        return duration

    def _release(self) -> None:
        import torch

        self._key = self.problem = None
        gc.collect()
        gc.freeze()  # frameworks, kernels and caches outlive a case; a collection would scan them for 0.2 s
        if self.device.type == "cuda":
            torch.cuda.empty_cache()

    def _find(self, name: str, case: Case) -> Implementation:
        self._found[name] = lookup.find(case, name)
        return self._found[name]

    def _report(self, implementation: str | None, phase: Phase, config: str = "") -> None:
        """Send the next phase, unless it was sent a moment ago. A failure is attributed to the last one."""
        current, now = Started(implementation, phase, config), time.monotonic()
        if current != self._current or now - self._sent_at > REPORT_PERIOD_S:
            self._current, self._sent_at = current, now
            self._on_started(current)
