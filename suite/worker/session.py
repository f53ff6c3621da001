"""What a worker does with a request: hold one problem, and check, time or tune implementations on it."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from suite.core.errors import SuiteError
from suite.core.phases import Phase
from suite.core.text import one_line
from suite.hardware.device import Device
from suite.implementations import failure, lookup
from suite.implementations.implementation import Implementation
from suite.problem.case import Case
from suite.worker.bound_call import BoundCall, bind
from suite.worker.child import WorkerDiedError, WorkerTimeoutError
from suite.worker.guest_process import RaisedError
from suite.worker.guests import BUDGETS_S, Guests
from suite.worker.protocol import (
    BuildRequest,
    CheckReply,
    CheckRequest,
    DescribeReply,
    DescribeRequest,
    ExternalReference,
    Failed,
    Reply,
    Request,
    Started,
    TellReply,
    TellRequest,
    TimeGuestRequest,
    TimeReply,
    TimeRequest,
    TimingColumns,
    TimingFailed,
    TuneReply,
    TuneRequest,
    name_of,
)
from suite.worker.replies import checked_reply, told_reply

if TYPE_CHECKING:
    from suite.checking.problem import Problem
    from suite.checking.timed_inputs import TimedInputs
    from suite.timing import Timing
    from suite.worker.nursery import Nursery

SIGN_OF_LIFE_S = 0.5
"""Period at which `Started` is repeated while the same phase goes on."""

REPEAT_S, TELLING_REPEAT_S = 0.004, 0.002
"""Time for which a checked call, and that of a telling case, is repeated with the same inputs."""
EXTERNAL = 25
"""Times as long for a user's file."""


class Session:
    """Answers requests on one device. Keeps the inputs of the latest case and, while they fit, its truths.

    `on_started` is called with a `Started` before anything that may hang or crash. Guests come from `nursery`.
    """

    def __init__(self, device: Device, on_started: Callable[[Started], None], nursery: Nursery | None = None) -> None:
        import torch

        import suite.timing  # noqa: F401 (its clocks are bound before a user's file is loaded)

        self.device = device
        self.torch_device = torch.device(device.type, 0) if device.type == "cuda" else torch.device("cpu")
        self.problem: Problem | None = None
        self._on_started = on_started
        self._key: tuple[Case, int] | None = None
        self._current = Started(None, Phase.STARTING)
        self._sent_at = 0.0
        self._found: dict[str, Implementation] = {}
        self._telling: dict[tuple[str, str, str, int], Mapping[str, Problem]] = {}
        self.guests = Guests(device, self._report, nursery)

    def handle(self, request: Request) -> Reply:
        """The reply to a request. What an implementation raises passes through, to `failed`."""
        self._found = {}
        match request:
            case CheckRequest(implementation=ExternalReference() as reference):
                return self.check_guest(request, reference)
            case CheckRequest():
                return self.check(request)
            case TellRequest(implementation=ExternalReference() as reference):
                return self.tell_guest(request, reference)
            case TellRequest():
                return self.tell(request)
            case TimeRequest():
                return self.time(request)
            case TimeGuestRequest():
                return self.time_guest(request)
            case TuneRequest():
                return self.tune(request)
            case BuildRequest():
                return self._build(name_of(request.implementation), request)
            case DescribeRequest():
                return self.describe(request)

    def failed(self, request: Request, error: Exception) -> Failed | TimingFailed:
        """The reply to a request that raised. A `SuiteError` is blamed on no implementation, unless it came from the
        process of a brought file."""
        name = self._current.implementation
        implementation = self._found.get(name or "")
        describe = failure.describe if implementation is None else implementation.describe_error
        blamed = None if isinstance(error, SuiteError) else name
        if isinstance(error, WorkerDiedError | RaisedError):
            reference = request.implementations[0] if isinstance(request, TimeRequest) else request.implementation
            reason, blamed = str(error), name_of(reference)
        else:
            reason = describe(error, self.device.type)
        if self._current.phase is Phase.TELLING_CALL:
            reason += f"; in the telling case {self._current.config} (NotImplementedError says that one is not covered)"
        status: Literal["error", "timeout"] = "timeout" if isinstance(error, WorkerTimeoutError) else "error"
        outside = isinstance(error, WorkerDiedError) and error.from_outside
        if isinstance(request, TimeRequest | TimeGuestRequest):
            return TimingFailed(status, reason, blamed, from_outside=outside)
        return Failed(reason, blamed, status, outside)

    def check(self, request: CheckRequest) -> CheckReply:
        """Load, call and judge one implementation of the tree."""
        from suite.checking.check import check

        name = name_of(request.implementation)
        self._report(name, Phase.PREPARING)
        problem = self.hold(request.case, request.seed)
        implementation = self._find(name, request.case)
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
                repeat_s=REPEAT_S,
                on_phase=lambda phase: self._report(name, phase),
            )
        except NotImplementedError as error:
            return CheckReply("unsupported", failure.unsupported_reason(error))
        finally:
            compile_cache = "".join(outcome() for outcome in watching)
        return checked_reply(result, (), implementation.adapter.configuration(implementation.load()), compile_cache)

    def tell(self, request: TellRequest) -> TellReply:
        """Call one implementation of the tree on telling cases. Its autotuned kernels run as in their last launch: the
        rows' configurations are what is checked, and no time goes into tuning for sizes that nobody uses."""
        from suite.checking.telling_cases import check_telling_cases

        name = name_of(request.implementation)
        self._report(name, Phase.PREPARING)
        problems = self._telling_problems(request.case, request.seed)
        implementation = self._find(name, request.case)
        self._report(name, Phase.FIRST_CALL)
        function, adapter = implementation.function(), implementation.adapter
        with adapter.without_tuning(implementation.load()):
            told = check_telling_cases(
                function,
                adapter,
                problems,
                TELLING_REPEAT_S,
                lambda case: self._report(name, Phase.TELLING_CALL, case),
            )
        return told_reply(told)

    def _telling_problems(self, case: Case, seed: int) -> Mapping[str, Problem]:
        """Those of the operation in the dtype and precision of `case`; kept, with their truths."""
        from suite import ops
        from suite.checking.problem import Problem

        key = case.operation, case.dtype, case.precision, seed
        if key not in self._telling:
            cases = ops.operation(case).telling_cases(case.dtype, case.precision)
            self._telling[key] = {name: Problem(each, seed, self.torch_device) for name, each in cases.items()}
        return self._telling[key]

    def check_guest(self, request: CheckRequest, reference: ExternalReference) -> CheckReply:
        """Let a brought file be called in its own process, and judge it here."""
        self._report(reference.name, Phase.PREPARING)
        problem = self.hold(request.case, request.seed)
        try:
            return checked_reply(*self.guests.check(reference, problem, EXTERNAL * REPEAT_S, request.timeout_s))
        except RaisedError as error:
            if error.kind != "unsupported":
                raise
            return CheckReply("unsupported", str(error))

    def tell_guest(self, request: TellRequest, reference: ExternalReference) -> TellReply:
        """Let a brought file be called on telling cases in its own process."""
        self._report(reference.name, Phase.PREPARING)
        problems = self._telling_problems(request.case, request.seed)
        told = self.guests.tell(reference, problems, EXTERNAL * TELLING_REPEAT_S, request.timeout_s)
        return told_reply(told)

    def time(self, request: TimeRequest) -> TimeReply | TimingFailed:
        """Time implementations that agree, together; then judge what they returned in some of the rounds."""
        timings, peak_bytes, guilty = self._time_here(request)
        if guilty:
            name = next(iter(guilty))
            return TimingFailed("wrong", guilty[name], name, guilty)
        columns = {name: self._columns(timings[name], peak_bytes[name]) for name in timings}
        return self._with_transfers(columns, request)

    def _time_here(self, request: TimeRequest) -> tuple[dict[str, Timing], Mapping[str, int | None], Mapping[str, str]]:
        """The times of implementations of the tree, the memory that they take, and what of their results is wrong."""
        from suite import timing
        from suite.checking.timed_inputs import LocalResults, TimedInputs

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
            vendor = bound.implementation.vendor is not None
            calls.append(timing.Call(name, bound.issue, adapter.wait, vendor=vendor, capture=adapter.capture))

        def rebind() -> None:
            for bound in bound_calls.values():
                bound.rebind(problem.buffers)

        adapters = {name: bound.implementation.adapter for name, bound in bound_calls.items()}
        inputs = TimedInputs(problem, LocalResults(problem, adapters), rebind)
        timings = timing.measure(
            calls,
            device=self.torch_device,
            cache=request.cache,
            budget_s=BUDGETS_S[self.device.type],
            max_noise=request.max_noise,
            energy=True,
            inputs=inputs,
            on_progress=lambda name: self._report(name, Phase.TIMED_CALL),
        )
        if not inputs.rounds:
            self._round_without_times(bound_calls, inputs)
        self._report(None, Phase.JUDGING)
        return timings, peak_bytes, inputs.judge()

    def time_guest(self, request: TimeGuestRequest) -> TimeReply | TimingFailed:
        """Time a brought file in its own process beside a vendor's implementation there."""
        from suite.timing.target import target
        from suite.worker.beside import time_beside

        problem = self.hold(request.case, request.seed)
        found = time_beside(self.guests, request, problem, target(self.torch_device), partial(self._vendor_us, request))
        if isinstance(found, TimingFailed):
            return found
        columns = self._columns(found.timing, found.peak_bytes)
        if found.disturbance:
            remarks = "; ".join(filter(None, (columns.remarks, f"disturbs its neighbours: {found.disturbance}")))
            columns = replace(columns, remarks=remarks, vs_best=None, vs_best_low=None, vs_best_high=None)
        return self._with_transfers({request.implementation.name: columns}, request)

    def _vendor_us(self, request: TimeGuestRequest) -> float:
        """The upper end of the device time of the vendor's implementation in this process; 0 if it has none."""
        here = TimeRequest(request.case, (request.vendor,), request.seed, request.cache, False, request.max_noise)
        timing = self._time_here(here)[0][request.vendor]
        return timing.device_us_high or timing.device_us or 0.0

    def _with_transfers(self, columns: dict[str, TimingColumns], request: TimeRequest | TimeGuestRequest) -> TimeReply:
        """Add the times of copies to and from the device, if they are asked for."""
        from suite import timing

        if request.transfers:
            self._report(None, Phase.PREPARING)
            problem = self.hold(request.case, request.seed)
            copies: dict[str, Any] = timing.transfers(
                problem.draws[0], problem.output_shape, problem.output_dtype, self.torch_device
            )
            columns = {name: replace(each, **copies) for name, each in columns.items()}
        return TimeReply(columns)

    def tune(self, request: TuneRequest) -> TuneReply | Failed:
        """Search the configurations of one implementation for the fastest that agrees."""
        from suite.worker.tuning_search import Search

        name = name_of(request.implementation)
        self._report(name, Phase.PREPARING)
        problem = self.hold(request.case, request.seed)
        implementation = self._find(name, request.case)

        def on_phase(phase: Phase, config: str = "") -> None:
            self._report(name, phase, config)

        try:
            found = Search(implementation, problem, self.torch_device, request.seed, on_phase).run()
        except NotImplementedError as error:
            return TuneReply("unsupported", failure.unsupported_reason(error))
        except SuiteError as error:
            return Failed(one_line(error), None)
        return TuneReply("ok", found=tuple(found))

    def _build(self, name: str, request: BuildRequest) -> Reply:
        from suite.worker.first_calls import build

        return build(self._find(name, request.case), request, self.torch_device, partial(self._report, name))

    def describe(self, request: DescribeRequest) -> DescribeReply | Failed:
        """Load a file that defines an operation, and find the form of its cases."""
        from suite import custom
        from suite.custom.truth import facts

        self._report(request.implementation, Phase.PREPARING)
        try:
            op = custom.of(request.source)
            shapes = [shape for text in request.shapes for shape in op.parse_shapes(text)] or op.about.defaults
            asked = [dtype for dtype in request.dtypes if dtype in (*op.dtypes, *op.dtypes_beyond)]
            cases = [op.case(shape, dtype, "ieee") for shape in shapes for dtype in asked or op.dtypes]
            found = tuple(facts(op.program, case, self.torch_device) for case in dict.fromkeys(cases))
        except SuiteError as error:
            return Failed(one_line(error), None)
        return DescribeReply(replace(op.about, facts=found))

    def hold(self, case: Case, seed: int) -> Problem:
        """The problem of a case, whose inputs are made unless they are those of the request before."""
        from suite.checking.problem import Problem

        if self.problem is None or self._key != (case, seed):
            self._release()
            self.problem = Problem(case, seed, self.torch_device)
            self._key = (case, seed)
        return self.problem

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

    def _round_without_times(self, bound_calls: Mapping[str, BoundCall], inputs: TimedInputs) -> None:
        """One more call of each implementation, whose results are kept: no recorder has taken samples."""
        inputs.begin_round(complete=True)
        for name, bound in bound_calls.items():
            self._report(name, Phase.TIMED_CALL)
            result = bound.issue()
            bound.implementation.adapter.wait(result)
            inputs.keep(name, result)

    def _columns(self, timing: Timing, peak_bytes: int | None) -> TimingColumns:
        """A timing as the columns of a row. The wall clock is a CPU's regular recorder, so its reason is left out."""
        columns = {
            each.name: getattr(timing, each.name)
            for each in fields(timing)
            if each.name not in ("error", "recorder_reason", "flags", "activities")
        }
        reasons = (timing.error, timing.recorder_reason if self.device.type == "cuda" else "")
        return TimingColumns(
            **columns,
            reason="; ".join(filter(None, reasons)),
            remarks="; ".join(timing.flags),
            peak_bytes=peak_bytes,
        )

    def _report(self, implementation: str | None, phase: Phase, config: str = "") -> None:
        """Send what runs next, unless it was sent a moment ago: a death or a silence is blamed on it."""
        current, now = Started(implementation, phase, config), time.monotonic()
        if current != self._current or now - self._sent_at > SIGN_OF_LIFE_S:
            self._current, self._sent_at = current, now
            self._on_started(current)
