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
from suite.implementations.identity import ExternalReference, Reference, name_of
from suite.processes.child import SHORT_KILL_S

if TYPE_CHECKING:
    from suite.checking.check import CheckResult
    from suite.checking.diagnosis import Diagnosis
    from suite.checking.problem import Problem
    from suite.checking.telling_cases import ProbeResult
    from suite.external.remote import SharedCase
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
        self._kept: dict[ExternalReference, ExternalProcess] = {}
        self._fork_server = fork_server
        self._handoff_ns = 0
        """Cost of a command, measured in a process before it loaded its file; 0 until one was measured undisturbed."""
        self._active: ExternalProcess | None = None
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

    def drop(self, reference: ExternalReference) -> None:
        """End the process of a file, if it has one: the next use starts a fresh one."""
        process = self._kept.pop(reference, None)
        if process is not None:
            self._discard(process)

    def check(
        self, reference: ExternalReference, problem: Problem, repeat_s: float, timeout_s: float
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
                repeat_s=repeat_s,
                on_phase=lambda phase: self._report(reference.name, phase),
            )
            facts = case.process.ask(p.About(reference), p.Facts)
        return result, facts.remarks, facts.config, facts.compile_cache

    def probe(
        self, reference: ExternalReference, problems: Mapping[str, Problem], repeat_s: float, timeout_s: float
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
                    return check_briefly(RemoteCaller(case, reference, telling=True), case.problem, repeat_s)
            except RaisedError as error:
                raise NotImplementedError(str(error)) if error.kind == "unsupported" else error from None

        def on_case(name: str) -> None:
            nonlocal config
            config = name

        return probe_cases(brief, frameworks.get(reference.framework), problems, on_case)

    def time(
        self, request: TimeExternalRequest, vendor: str, problem: Problem, local: Target
    ) -> tuple[dict[str, Timing], int | None]:
        """Time a file, and a vendor's implementation unless `vendor` is empty, in the file's process.

        Returns the times by name, and the memory that a call of the file takes. Raises `WrongResultsError` for results
        that were wrong while timed, and the errors of `check`.
        """
        from suite.checking.timed_inputs import TimedInputs
        from suite.external.remote import RemoteResults, RemoteTarget, remote_call
        from suite.timing.budgets import BUDGETS_S, INTERVAL
        from suite.timing.sampling import Measurement

        reference = request.implementation
        with self._case(reference, problem, request.timeout_s) as case:
            references: list[Reference] = [reference, *([vendor] if vendor else [])]
            process, copied = case.process, False
            case.problem.present(0)
            for each in references:
                self._report(name_of(each), Phase.FIRST_CALL)
                copied |= process.ask(p.Bind(each), p.Bound).copied
            peak = process.ask(p.PeakBytes(reference.name), p.Peak).bytes
            names = list(map(name_of, references))
            results = RemoteResults(case, names)

            def rebind() -> None:
                if copied:
                    process.ask(p.Rebind(), p.Finished)

            inputs = TimedInputs(case.problem, results, rebind)
            measurement = Measurement(
                [remote_call(process, name, vendor=name == vendor) for name in names],
                RemoteTarget(process, local, results),
                request.cache,
                on_progress=lambda name: self._report(name, Phase.TIMED_CALL),
                inputs=inputs,
            )
            timings = measurement.measure(BUDGETS_S[self.device.type], INTERVAL, True, request.max_noise)
            if not inputs.rounds:  # no recorder has taken samples
                inputs.begin_round(complete=True)
                for name in names:
                    results.run(name)
                    inputs.keep(name, None)
            self._report(None, Phase.JUDGING)
            wrong = inputs.judge()
        if wrong:
            raise WrongResultsError(wrong)
        return timings, peak

    @contextmanager
    def _case(self, reference: ExternalReference, problem: Problem, timeout_s: float) -> Iterator[SharedCase]:
        """The problem, held by the file's process. The process is paused afterwards; an error ends it."""
        from suite.external.remote import SharedCase

        process = self._running(reference, timeout_s)
        try:
            case = SharedCase(process, problem)
            yield case
            case.release()
        except BaseException as error:
            unsupported = isinstance(error, RaisedError) and error.kind == "unsupported"
            if not unsupported:
                self._kept.pop(reference, None)
                self._discard(process)
                raise
            case.release()
            raise
        finally:
            self._active = None
            if reference in self._kept:
                process.pause()

    def _running(self, reference: ExternalReference, timeout_s: float) -> ExternalProcess:
        process = self._kept.pop(reference, None)
        if process is not None and not process.alive:
            self._discard(process)
            process = None
        if process is None:
            while len(self._kept) >= MAX_KEPT:
                self._discard(self._kept.pop(next(iter(self._kept))))
            process = self._fresh()
            monitor.own_processes.add(process.pid)
            self._active = process
            self._report(reference.name, Phase.STARTING)
            try:
                process.wait_until_ready(self._handoff_ns)
                self._handoff_ns = process.handoff_ns if process.handoff_ns < MAX_HANDOFF_NS else 0
            except BaseException:
                self._active = None
                self._discard(process)
                raise
        self._kept[reference] = process  # the most recent, so the last to be ended
        self._active, process.timeout_s = process, timeout_s
        process.discard_output()
        process.resume()
        self._report(reference.name, Phase.PREPARING)
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
        if self._active is not None:
            self._active.current = self._latest
        self._report_outside(name, phase, config)
