"""The guests of a worker: one process for each brought file, in which the file is checked and timed.

The worker itself never runs the file's code. It makes the inputs, judges the results and has the clock (on a CPU), so
that the file can spoil its own row only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from suite.core.phases import Phase
from suite.hardware import monitor
from suite.hardware.device import Device
from suite.implementations.external.reference import ExternalReference, Reference, name_of
from suite.worker import guest_protocol as p
from suite.worker.child import HASTY_KILL_S
from suite.worker.guest_process import MAX_HANDOFF_NS, GuestProcess, RaisedError
from suite.worker.nursery import Nursery
from suite.worker.protocol import Started, TimeGuestRequest

if TYPE_CHECKING:
    from suite.checking.check import CheckResult
    from suite.checking.diagnosis import Diagnosis
    from suite.checking.problem import Problem
    from suite.checking.telling_cases import TellingResult
    from suite.timing import Timing
    from suite.timing.target import Target
    from suite.worker.remote import GuestCase

KEPT = 8
"""Guests that are kept for later cases: each is a process with its framework."""
SLOWER = {"cpu": 1.25, "cuda": 1.05}
"""A vendor's implementation is disturbed if it takes more than so many times as long beside a file as by the upper end
of its interval without brought files, and the two intervals are apart."""
BUDGETS_S = {"cuda": 0.04, "cpu": 0.1}
"""Budget of an implementation's samples, beyond the few that each gets."""
INTERVAL = 0.005
"""Relative half width of a median's interval at which there are samples enough."""


class GuiltyError(Exception):
    """Results were wrong while timed: the reasons by name."""

    def __init__(self, guilty: dict[str, str]) -> None:
        super().__init__(next(iter(guilty.values())))
        self.guilty = guilty


class Guests:
    """The guests for one device. `report` is called with what runs, before it runs and while it does."""

    def __init__(
        self, device: Device, report: Callable[[str | None, Phase, str], None], nursery: Nursery | None = None
    ) -> None:
        self.device, self._report_outside = device, report
        self._kept: dict[ExternalReference, GuestProcess] = {}
        self._nursery = nursery
        self._handoff_ns = 0
        """What a command takes, as an early guest has shown before its file was loaded; 0 while all were disturbed."""
        self._active: GuestProcess | None = None
        self._latest = Started(None, Phase.STARTING)

    @property
    def running(self) -> str | None:
        """The implementation that was called last."""
        return self._latest.implementation

    def close(self) -> None:
        """End all guests."""
        for reference in list(self._kept):
            self.drop(reference)
        if self._nursery is not None:
            self._nursery.close(HASTY_KILL_S)
            self._nursery = None

    def drop(self, reference: ExternalReference) -> None:
        """End the guest of a file, if it has one: the next use starts a fresh one."""
        guest = self._kept.pop(reference, None)
        if guest is not None:
            self._discard(guest)

    def check(
        self, reference: ExternalReference, problem: Problem, repeat_s: float, timeout_s: float
    ) -> tuple[CheckResult, tuple[str, ...], str, str]:
        """The result of the checked call, what is to be remarked of the file, the configuration that it has chosen, and
        whether its programs came from a cache.

        Raises `RaisedError` for what the file raises, `WorkerDiedError` for the end of its process.
        """
        from suite.checking.check import check_calls
        from suite.worker.remote import RemoteCaller

        with self._case(reference, problem, timeout_s) as case:
            result = check_calls(
                RemoteCaller(case, reference),
                case.problem,
                claims_determinism=reference.deterministic,
                repeat_s=repeat_s,
                on_phase=lambda phase: self._report(reference.name, phase),
            )
            facts = case.guest.ask(p.About(reference), p.Facts)
        return result, facts.remarks, facts.config, facts.compile_cache

    def tell(
        self, reference: ExternalReference, problems: Mapping[str, Problem], repeat_s: float, timeout_s: float
    ) -> TellingResult:
        """What the telling cases show. Raises as `check` does."""
        from suite import frameworks
        from suite.checking.check import check_briefly
        from suite.checking.telling_cases import check_each
        from suite.worker.remote import RemoteCaller

        config = ""

        def brief(problem: Problem) -> tuple[str, Diagnosis]:
            try:
                with self._case(reference, problem, timeout_s) as case:
                    self._report(reference.name, Phase.TELLING_CALL, config)
                    return check_briefly(RemoteCaller(case, reference, telling=True), case.problem, repeat_s)
            except RaisedError as error:
                raise NotImplementedError if error.kind == "unsupported" else error from None

        def on_case(name: str) -> None:
            nonlocal config
            config = name

        return check_each(brief, frameworks.get(reference.framework), problems, on_case)

    def time(
        self, request: TimeGuestRequest, vendor: str, problem: Problem, local: Target
    ) -> tuple[dict[str, Timing], int | None]:
        """The times of a file and of a vendor's implementation (if `vendor` is not empty) in the file's process, and
        the memory that a call of the file takes.

        Raises `GuiltyError` for results that were wrong while timed, and what `check` raises.
        """
        from suite.checking.timed_inputs import TimedInputs
        from suite.timing.sampling import Measurement
        from suite.worker.remote import RemoteResults, RemoteTarget, remote_call

        reference = request.implementation
        with self._case(reference, problem, request.timeout_s) as case:
            references: list[Reference] = [reference, *([vendor] if vendor else [])]
            guest, copied = case.guest, False
            case.problem.present(0)
            for each in references:
                self._report(name_of(each), Phase.FIRST_CALL)
                copied |= guest.ask(p.Bind(each), p.Bound).copied
            peak = guest.ask(p.PeakBytes(reference.name), p.Peak).bytes
            names = list(map(name_of, references))
            results = RemoteResults(case, names)

            def rebind() -> None:
                if copied:
                    guest.ask(p.Rebind(), p.Finished)

            inputs = TimedInputs(case.problem, results, rebind)
            measurement = Measurement(
                [remote_call(guest, name, vendor=name == vendor) for name in names],
                RemoteTarget(guest, local, results),
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
            guilty = inputs.judge()
        if guilty:
            raise GuiltyError(guilty)
        return timings, peak

    @contextmanager
    def _case(self, reference: ExternalReference, problem: Problem, timeout_s: float) -> Iterator[GuestCase]:
        """A guest for the file that holds the problem. It is stopped afterwards; after an error it is ended."""
        from suite.worker.remote import GuestCase

        guest = self._running(reference, timeout_s)
        try:
            case = GuestCase(guest, problem)
            yield case
            case.release()
        except BaseException as error:
            unsupported = isinstance(error, RaisedError) and error.kind == "unsupported"
            if not unsupported:
                self._kept.pop(reference, None)
                self._discard(guest)
                raise
            case.release()
            raise
        finally:
            self._active = None
            if reference in self._kept:
                guest.pause()

    def _running(self, reference: ExternalReference, timeout_s: float) -> GuestProcess:
        guest = self._kept.pop(reference, None)
        if guest is not None and not guest.alive:
            self._discard(guest)
            guest = None
        if guest is None:
            while len(self._kept) >= KEPT:
                self._discard(self._kept.pop(next(iter(self._kept))))
            guest = self._fresh()
            monitor.own_processes.add(guest.process.pid)
            self._active = guest
            self._report(reference.name, Phase.STARTING)
            try:
                guest.settle(self._handoff_ns)
                self._handoff_ns = guest.handoff_ns if guest.handoff_ns < MAX_HANDOFF_NS else 0
            except BaseException:
                self._active = None
                self._discard(guest)
                raise
        self._kept[reference] = guest  # the last to be ended
        self._active, guest.timeout_s = guest, timeout_s
        guest.forget_output()
        guest.resume()
        self._report(reference.name, Phase.PREPARING)
        return guest

    def _fresh(self) -> GuestProcess:
        """A new guest, from a new nursery if a file has killed that which there was."""
        if self._nursery is not None and self._nursery.process.poll() is not None:
            self._nursery.close()
            self._nursery = None
        if self._nursery is None:
            self._nursery = Nursery(self.device)
        return GuestProcess(self._nursery.fork, self.device, self._still_running)

    def _discard(self, guest: GuestProcess) -> None:
        guest.close(HASTY_KILL_S)
        monitor.own_processes.discard(guest.process.pid)

    def _still_running(self) -> None:
        self._report_outside(self._latest.implementation, self._latest.phase, self._latest.config)

    def _report(self, name: str | None, phase: Phase, config: str = "") -> None:
        self._latest = Started(name, phase, config)
        if self._active is not None:
            self._active.current = self._latest
        self._report_outside(name, phase, config)
