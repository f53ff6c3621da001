"""The search for a kernel's fastest configuration that agrees. Successive rounds drop slow candidates.

1. Every candidate is compiled, in parallel.
2. Each is called twice, and the host's clock times the second call. Slow ones drop out.
3. The rest is timed like the rows of a table (cold L2 cache, interleaved), with a few samples each. Slow ones drop out.
4. The rest is timed with many samples. The fastest that passes the checked call of `checking/check.py` wins.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

import torch

from suite import timing
from suite.checking.check import check
from suite.core.errors import SuiteError
from suite.core.least import NOTHING_MORE, Least
from suite.core.phases import Phase
from suite.core.text import one_line
from suite.frameworks.triton import autotuner
from suite.frameworks.triton.tuned import SPACE, Entry
from suite.implementations import failure
from suite.worker.protocol import Failed, TunedKernel, TuneReply, TuneRequest

if TYPE_CHECKING:
    from triton import Config

    from suite.checking.problem import Problem
    from suite.frameworks.triton.autotuner import Launch
    from suite.implementations.implementation import Implementation

SLACK, HOST_US = 1.3, 50.0
"""A candidate stays if its time is at most SLACK times the fastest plus HOST_US, the error of the host's clock."""
CLOSE, FINAL_S = 1.06, 2.0
"""After the first samples a candidate stays up to CLOSE times the fastest. The rest is timed for FINAL_S in all, since
the power cap takes that long to act and may change the order."""

C = TypeVar("C")


class OnPhase(Protocol):
    def __call__(self, phase: Phase, config: str = "") -> None: ...


@dataclass(frozen=True)
class Outcome(Generic[C]):
    """The winner, the number of candidates that `failed` to compile or launch, and of those faster but `wrong`."""

    best: C
    us: float
    first_us: float
    candidates: int
    failed: int
    wrong: int


def find_fastest(
    candidates: Sequence[C],
    first: C,
    *,
    time_once: Callable[[C], float | None],
    measure: Callable[[Sequence[C], float], dict[C, float]],
    judge: Callable[[C], str],
) -> Outcome[C]:
    """The fastest of `candidates` that is right. `first`, one of them, is the baseline and stays to the end.

    `time_once` returns the time of a call in us, None if it cannot be called. `measure` returns the times of several
    candidates, and may spend the given seconds beyond a few samples each. `judge` returns the error of a candidate, or
    an empty text. Raises `SuiteError` if no candidate is right.
    """
    quick = {candidate: us for candidate in candidates if (us := time_once(candidate)) is not None}
    failed = len(candidates) - len(quick)
    if first not in quick:
        raise SuiteError("the configuration that the autotuner chose cannot be launched again")
    left = _near(quick, first, SLACK, HOST_US)
    left = _near(measure(left, 0.0), first, CLOSE)
    times = measure(left, FINAL_S)
    reason = ""
    for wrong, best in enumerate(sorted(times, key=times.__getitem__)):
        reason = judge(best)
        if not reason:
            return Outcome(best, times[best], times[first], len(candidates), failed, wrong)
    raise SuiteError(f"none of the {len(times)} fastest configurations agrees: {reason}")


def _near(times: dict[C, float], first: C, factor: float, more: float = 0.0) -> list[C]:
    most = factor * min(times.values()) + more
    return [candidate for candidate, us in times.items() if us <= most or candidate == first]


def tuned(
    request: TuneRequest,
    implementation: Implementation,
    problem: Problem,
    device: torch.device,
    on_phase: OnPhase,
) -> TuneReply | Failed:
    """The reply to `request`, for a worker."""
    try:
        found = Search(implementation, problem, device, request.seed, on_phase, request.least).run()
    except NotImplementedError as error:
        return TuneReply("unsupported", failure.unsupported_reason(error))
    except SuiteError as error:
        return Failed(one_line(error), None)
    return TuneReply("ok", found=tuple(found))


class Search:
    """The search for one implementation on one problem, which makes its autotuners choose each configuration in turn.

    `on_phase` is called before each phase that may hang or crash, with the configuration under trial.
    """

    def __init__(
        self,
        implementation: Implementation,
        problem: Problem,
        device: torch.device,
        seed: int,
        on_phase: OnPhase,
        least: Least = NOTHING_MORE,
    ) -> None:
        self.implementation, self.problem, self.device = implementation, problem, device
        self.adapter, self.seed, self.on_phase, self.least = implementation.adapter, seed, on_phase, least
        on_phase(Phase.FIRST_CALL)
        self.module, self.function = implementation.load(), implementation.function()
        self.inputs = [self.adapter.to_native(tensor) for tensor in problem.draws[0]]

    def run(self) -> list[TunedKernel]:
        """The best configuration for each autotuner key that one call looks up; empty if it looks up none.

        Exceptions of the implementation pass through. Raises `SuiteError` if a search ends without a result.
        """
        kernels = autotuner.autotuners(self.module)
        names = {id(kernel): name for name, kernel in kernels.items()}
        with autotuner.emptied_caches(kernels.values()):
            launches = autotuner.launches(kernels.values(), self.call)
            return [self.best(names[id(launch.kernel)], launch) for launch in launches]

    def best(self, name: str, launch: Launch) -> TunedKernel:
        """The best configuration for one launch of the kernel `name`."""
        first = launch.kernel.cache[launch.key]
        candidates = launch.candidates(getattr(self.module, SPACE))
        threads = len(os.sched_getaffinity(0))
        autotuner.compile_all(launch, candidates, threads, on_compiled=partial(self.on_phase, Phase.FIRST_CALL))
        outcome = find_fastest(
            candidates,
            first,
            time_once=partial(self.time_once, launch),
            measure=partial(self.measure, launch),
            judge=partial(self.judge, launch),
        )
        launch.choose(outcome.best)
        key, dtypes = autotuner.named(launch.kernel, launch.key)
        us, first_us = (float(f"{each:.4g}") for each in (outcome.us, outcome.first_us))
        entry = Entry(name, key, dtypes, autotuner.plain(outcome.best), us, first_us, outcome.candidates)
        return TunedKernel(entry, autotuner.text(outcome.best), autotuner.text(first), outcome.failed, outcome.wrong)

    def issue(self) -> Any:
        return self.function(*self.inputs, **self.problem.op.arguments(self.problem.case))

    def call(self) -> None:
        self.adapter.wait(self.issue())

    def time_once(self, launch: Launch, config: Config) -> float | None:
        """The shorter time of two calls in us, by the host's clock; None if the call before them fails but the device
        still works."""
        launch.choose(config)
        self.on_phase(Phase.TIMED_CALL, autotuner.text(config))
        try:
            self.call()
        except Exception as error:
            try:
                torch.cuda.synchronize(self.device)
            except Exception:
                raise SuiteError(f"{autotuner.text(config)}: {one_line(error)}") from error
            return None
        spans = []
        for _ in range(2):  # another process may delay one
            begin = time.perf_counter_ns()
            self.call()
            spans.append(time.perf_counter_ns() - begin)
        return min(spans) / 1000

    def measure(self, launch: Launch, configs: Sequence[Config], budget_s: float) -> dict[Config, float]:
        def chosen(config: Config) -> Any:
            launch.choose(config)
            return self.issue()

        by_name = {autotuner.text(config): config for config in configs}
        timings = timing.measure(
            [timing.Call(name, partial(chosen, config), self.adapter.wait) for name, config in by_name.items()],
            device=self.device,
            budget_s=budget_s / len(by_name),
            least=self.least if budget_s else NOTHING_MORE,  # the first round only drops slow candidates
            seed=self.seed,
            on_progress=partial(self.on_phase, Phase.TIMED_CALL),
        )
        times = {}
        for name, found in timings.items():
            if found.device_us is None:
                raise SuiteError(f"{name} cannot be measured: {found.error or found.recorder_reason}")
            times[by_name[name]] = found.device_us
        return times

    def judge(self, launch: Launch, config: Config) -> str:
        """The error in the results of this configuration; empty if there is none."""
        launch.choose(config)
        config_text = autotuner.text(config)
        return check(
            lambda: self.function,
            self.adapter,
            self.problem,
            claims_determinism=self.implementation.deterministic,
            on_phase=lambda phase: self.on_phase(
                Phase.JUDGING if phase is Phase.JUDGING else Phase.TIMED_CALL, config_text
            ),
        ).reason
