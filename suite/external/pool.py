"""The external processes of a worker: one for each user's file, in which the file is checked and timed.

The worker itself never runs the file's code. It makes the inputs, judges the results and, on a CPU, reads the clock, so
that the file can affect only its own row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from suite.core.phases import Phase, Started
from suite.external import protocol as p
from suite.external.fork_server import ExternalForkServer
from suite.external.process import MAX_HANDOFF_NS, ExternalProcess, RaisedError
from suite.external.requests import TimeExternalRequest
from suite.hardware import monitor
from suite.hardware.device import Device
from suite.implementations import lookup
from suite.implementations.identity import ExternalReference, name_of
from suite.processes.child import SHORT_KILL_S
from suite.processes.own_limits import OwnLimits

if TYPE_CHECKING:
    from suite.checking.check import CheckResult
    from suite.checking.diagnosis import Diagnosis
    from suite.checking.problem import Problem
    from suite.checking.repeats import Duration
    from suite.checking.telling_cases import ProbeResult
    from suite.external.host_timing import EmptySamples, HostResults
    from suite.external.remote import RemoteResults, SharedCase
    from suite.problem.case import Case
    from suite.timing import Timing
    from suite.timing.target import Target

MAX_KEPT = 8
"""Processes kept for later cases: each holds its framework."""


class WrongResultsError(Exception):
    """Results were wrong while timed: the reasons by implementation."""

    def __init__(self, reasons: Mapping[str, str]) -> None:
        super().__init__(next(iter(reasons.values())))
        self.reasons = reasons


class ExternalPool:
    """The external processes for one device.

    `report` gets the implementation, its phase and its configuration before each phase and while it goes on.
    """

    def __init__(
        self,
        device: Device,
        report: Callable[[str | None, Phase, str], None],
        fork_server: ExternalForkServer | None = None,
    ) -> None:
        self.device, self._report_outside = device, report
        self._kept: dict[ExternalReference | None, ExternalProcess] = {}
        """By file; None for the process that loads none."""
        self._fork_server = fork_server
        self._handoff_ns = 0
        """Cost of a command, measured in a process before it loaded its file; 0 until one was measured undisturbed."""
        self._empty_spans: dict[tuple[Case, str], list[float]] = {}
        """Times of samples without a call, by case and framework, of the latest case."""
        self._active: list[ExternalProcess] = []
        self._limits = OwnLimits()
        self._latest = Started(None, Phase.STARTING)

    @property
    def running(self) -> str | None:
        """The implementation that was called last."""
        return self._latest.implementation

    def close(self) -> None:
        """End all processes."""
        for reference in list(self._kept):
            self.drop(reference)
        if self._fork_server is not None:
            self._fork_server.close(SHORT_KILL_S)
            self._fork_server = None

    def drop(self, reference: ExternalReference | None) -> None:
        """End the process of a file, or of none, if there is one: the next use starts a fresh one."""
        process = self._kept.pop(reference, None)
        if process is not None:
            self._discard(process)

    def check(
        self, reference: ExternalReference, problem: Problem, repeats: Duration, timeout_s: float
    ) -> tuple[CheckResult, tuple[str, ...], str, str]:
        """Check a file: the result of the checked call, remarks, its configuration, and its use of compile caches.

        Raises `RaisedError` for an exception of the file, `WorkerDiedError` if its process ends.
        """
        from suite.checking.check import check_calls
        from suite.external.remote import RemoteCaller

        with self._case(reference, problem, timeout_s) as case:
            result = check_calls(
                RemoteCaller(case, reference),
                case.problem,
                claims_determinism=reference.deterministic,
                repeats=repeats,
                on_phase=lambda phase: self._report(reference.name, phase),
            )
            facts = case.process.ask(p.About(reference), p.Facts)
        remarks = tuple(filter(None, (*facts.remarks, self._limits.restore())))
        return result, remarks, facts.config, facts.compile_cache

    def probe(
        self, reference: ExternalReference, problems: Mapping[str, Problem], repeats: Duration, timeout_s: float
    ) -> ProbeResult:
        """Call a file on the telling cases. Raises as `check` does."""
        from suite import frameworks
        from suite.checking.check import check_briefly
        from suite.checking.telling_cases import probe_cases
        from suite.external.remote import RemoteCaller

        config = ""

        def brief(problem: Problem) -> tuple[str, Diagnosis]:
            try:
                with self._case(reference, problem, timeout_s) as case:
                    self._report(reference.name, Phase.TELLING_CALL, config)
                    return check_briefly(RemoteCaller(case, reference, telling=True), case.problem, repeats)
            except RaisedError as error:
                raise NotImplementedError(str(error)) if error.kind == "unsupported" else error from None

        def on_case(name: str) -> None:
            nonlocal config
            config = name

        return probe_cases(brief, frameworks.get(reference.framework), problems, on_case)

    def memory_fault(self, reference: ExternalReference, problems: Mapping[str, Problem], timeout_s: float) -> str:
        """Call a file on `problems` with checked accesses to memory; return the first error, empty if there is none."""
        from suite.checking.calls import RefusedError
        from suite.external.remote import RemoteCaller

        for name in problems:
            try:
                with self._case(reference, problems[name], timeout_s) as case:
                    self._report(reference.name, Phase.TELLING_CALL, name)
                    RemoteCaller(case, reference, telling=True).call(0)
            except RaisedError as error:
                if error.kind != "unsupported":
                    return f"{error}; in the telling case {name}"
            except RefusedError:
                continue
        return ""

    def time(
        self, request: TimeExternalRequest, vendor: str, problem: Problem, local: Target
    ) -> tuple[dict[str, Timing], int | None, int]:
        """Time a file, and a vendor's implementation unless `vendor` is empty, in turns.

        On a GPU both run in the file's process. On a CPU the vendor's runs in a process that loads no file.
        Returns the times by name, the memory that a call of the file takes, and how many of its timed calls were
        judged. Raises `WrongResultsError` for results that were wrong while timed, and the errors of `check`.
        """
        from suite.checking.timed_inputs import JUDGE_FILE_S, TimedInputs
        from suite.external.remote import RemoteResults, remote_call
        from suite.timing.budgets import BUDGETS_S, INTERVAL
        from suite.timing.sampling import Measurement

        reference = request.implementation
        with self._cases(reference, problem, request.timeout_s) as (case, clean):
            owners: dict[ExternalReference | str, SharedCase] = {reference: case}
            if vendor:
                owners[vendor] = clean
            copied = False
            case.problem.present(0)
            for each, owner in owners.items():
                self._report(name_of(each), Phase.FIRST_CALL)
                copied |= owner.process.ask(p.Bind(each), p.Bound).copied
            peak = case.process.ask(p.PeakBytes(reference.name), p.Peak).bytes
            cases = {name_of(each): owner for each, owner in owners.items()}
            target, results = self._target(cases, clean, reference, local, request.cache)

            def rebind() -> None:
                if copied and not local.on_host:
                    case.process.ask(p.Rebind(), p.Finished)

            inputs = TimedInputs(case.problem, results, rebind, of_file=True)
            measurement = Measurement(
                [remote_call(owner.process, name, vendor=name == vendor) for name, owner in cases.items()],
                target,
                request.cache,
                on_progress=lambda name: self._report(name, Phase.TIMED_CALL),
                inputs=inputs,
            )
            budget_s = BUDGETS_S[self.device.type]
            timings = measurement.measure(budget_s, INTERVAL, request.max_noise, request.least)
            if isinstance(results, RemoteResults) and not inputs.rounds:  # no recorder has taken samples
                inputs.begin_round(complete=True)
                for name in cases:
                    results.run(name)
                    inputs.keep(name, None)
            self._report(None, Phase.JUDGING)
            wrong = inputs.judge(JUDGE_FILE_S)
        if wrong:
            raise WrongResultsError(wrong)
        return timings, peak, inputs.judged[reference.name]

    def _target(
        self,
        cases: Mapping[str, SharedCase],
        clean: SharedCase,
        reference: ExternalReference,
        local: Target,
        cache: str,
    ) -> tuple[Target, RemoteResults | HostResults]:
        """The target of a measurement, and access to its results."""
        from suite import frameworks
        from suite.external.host_timing import HostRecorder, HostResults
        from suite.external.remote import RemoteRecorder, RemoteResults, RemoteTarget

        if not local.on_host:
            results = RemoteResults(clean, list(cases))
            adapter, outputs = frameworks.get(reference.framework), set(clean.problem.output_dtypes)
            recorder = RemoteRecorder(
                clean.process,
                results,
                reference.name,
                idle_before=cache == "cold" and not adapter.copies(clean.problem.buffers),
                idle_after=clean.has_results_of_one_type and not adapter.stand_ins.keys() & outputs,
            )
            return RemoteTarget(local, recorder), results
        own, *vendors = cases
        used = {own: reference.framework} | {name: lookup.find(clean.problem.case, name).framework for name in vendors}
        by_framework = {each: self._empty(clean, each, local) for each in set(used.values())}
        empty = {name: by_framework[each] for name, each in used.items()}
        copies = HostResults(cases)
        return RemoteTarget(local, HostRecorder(cases, empty, copies)), copies

    def _empty(self, clean: SharedCase, framework: str, local: Target) -> EmptySamples:
        """Samples without a call. The files of a case share their times."""
        from suite.external.host_timing import EmptySamples

        case = clean.problem.case
        if any(measured != case for measured, _ in self._empty_spans):
            self._empty_spans.clear()
        spans = self._empty_spans.setdefault((case, framework), [])
        found = EmptySamples(clean, framework, local.evict, spans)
        found.begin()
        return found

    @contextmanager
    def _cases(
        self, reference: ExternalReference, problem: Problem, timeout_s: float
    ) -> Iterator[tuple[SharedCase, SharedCase]]:
        """The problem in the file's process, and in one without a file. On a GPU the file's process is both."""
        with self._case(reference, problem, timeout_s) as case:
            if self.device.type == "cuda":
                yield case, case
            else:
                case.process.stop()
                with self._case(None, problem, timeout_s, case) as clean:
                    yield case, clean

    @contextmanager
    def _case(
        self, owner: ExternalReference | None, problem: Problem, timeout_s: float, beside: SharedCase | None = None
    ) -> Iterator[SharedCase]:
        """The problem, held by a file's process, or by one without a file, with the inputs of the case `beside`.

        The process is paused afterwards; an error ends it.
        """
        from suite.external.remote import SharedCase

        self._limits.restore()
        process = self._running(owner, timeout_s)
        try:
            case = SharedCase(process, problem, beside)
            yield case
            case.release()
            process.pause()
        except BaseException as error:
            unsupported = isinstance(error, RaisedError) and error.kind == "unsupported"
            if not unsupported:
                self._kept.pop(owner, None)
                self._discard(process)
                raise
            case.release()
            process.pause()
            raise
        finally:
            self._active.remove(process)

    def _running(self, owner: ExternalReference | None, timeout_s: float) -> ExternalProcess:
        process, name = self._kept.pop(owner, None), owner.name if owner is not None else None
        if process is not None and not process.alive:
            self._discard(process)
            process = None
        if process is None:
            while len(self._kept) >= MAX_KEPT:
                self._discard(self._kept.pop(next(iter(self._kept))))
            process = self._fresh()
            monitor.own_processes.add(process.pid)
            self._active.append(process)
            self._report(name, Phase.STARTING)
            try:
                process.wait_until_ready(self._handoff_ns)
                self._handoff_ns = process.handoff_ns if process.handoff_ns < MAX_HANDOFF_NS else 0
            except BaseException:
                self._active.remove(process)
                self._discard(process)
                raise
        else:
            self._active.append(process)
        self._kept[owner] = process  # the most recent, so the last to be ended
        process.timeout_s = timeout_s
        process.discard_output()
        process.resume()
        self._limits.scheduling.restore(process.pid)  # another file may have changed it
        self._report(name, Phase.PREPARING)
        return process

    def _fresh(self) -> ExternalProcess:
        """A new process, from a new fork server if a file has killed the present one."""
        if self._fork_server is not None and not self._fork_server.alive:
            self._fork_server.close()
            self._fork_server = None
        if self._fork_server is None:
            self._fork_server = ExternalForkServer(self.device)
        return ExternalProcess(self._fork_server.fork, self.device, self._still_running)

    def _discard(self, process: ExternalProcess) -> None:
        process.close(SHORT_KILL_S)
        monitor.own_processes.discard(process.pid)

    def _still_running(self) -> None:
        self._report_outside(self._latest.implementation, self._latest.phase, self._latest.config)

    def _report(self, name: str | None, phase: Phase, config: str = "") -> None:
        self._latest = Started(name, phase, config)
        for process in self._active:
            process.current = self._latest
        self._report_outside(name, phase, config)
