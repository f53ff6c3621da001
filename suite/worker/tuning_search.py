"""The search for a kernel's fastest configuration that agrees: a race in which the slow leave early.

Every candidate is compiled, all at once; launched, and launched again by the host's clock; what is left is measured
like the rows of a table (cold L2 cache, interleaved), first by a few samples each, then the closest by many. The
fastest of those wins if it passes the checked call of `examine.py`; else the next.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import torch

from suite import timing
from suite.checking.checked_call import examine
from suite.core.errors import SuiteError
from suite.core.text import one_line
from suite.frameworks.triton import autotuner as _autotuner
from suite.frameworks.triton.tuned import SPACE, Entry
from suite.worker.protocol import FIRST_CALL, JUDGING, TIMED_CALL

if TYPE_CHECKING:
    from triton import Config

    from suite.checking.checked_call import Problem
    from suite.frameworks.triton.autotuner import Launch
    from suite.implementations.builtin import Implementation

SLACK, HOST_US = 1.3, 50.0
"""By the host's clock: how much slower than the fastest may stay, and what that clock adds at times."""
CLOSE, FINAL_S = 1.06, 2.0
"""How much slower may stay after the first few samples, and the time for the samples of those that do: long enough for
the power cap to show, under which another one may be the fastest."""

C = TypeVar("C")


@dataclass(frozen=True)
class Outcome(Generic[C]):
    """The winner, and how many fell: `failed` to compile or to launch, `wrong` when they would have won."""

    best: C
    us: float
    first_us: float
    candidates: int
    failed: int
    wrong: int


def race(
    candidates: Sequence[C],
    first: C,
    *,
    look: Callable[[C], float | None],
    measure: Callable[[Sequence[C], float], dict[C, float]],
    judge: Callable[[C], str],
) -> Outcome[C]:
    """The fastest of `candidates` that is right. `first`, one of them, is what they have to beat, and stays to the end.

    `look` gives the time of one call in us, None if it cannot be called; `measure` those of several, in the seconds
    given beyond a few samples each; `judge` what is wrong with a candidate. Raises `SuiteError` where none is right.
    """
    looks = {candidate: us for candidate in candidates if (us := look(candidate)) is not None}
    failed = len(candidates) - len(looks)
    if first not in looks:
        raise SuiteError("the configuration that the autotuner chose cannot be launched again")
    left = _near(looks, first, SLACK, HOST_US)
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


@dataclass(frozen=True)
class Found:
    """What a search tells the process that asked for it."""

    entry: Entry
    config: str
    short_list: str
    """The configuration that the autotuner had chosen."""
    failed: int
    wrong: int


class Search:
    """One implementation on one problem, whose autotuners are made to choose one configuration after the other.

    `announce` is told what runs next, so that the last word names the configuration that hangs or kills the process.
    """

    def __init__(
        self,
        implementation: Implementation,
        problem: Problem,
        device: torch.device,
        seed: int,
        announce: Callable[[str], None],
    ) -> None:
        self.implementation, self.problem, self.device = implementation, problem, device
        self.adapter, self.seed, self.announce = implementation.adapter, seed, announce
        announce(FIRST_CALL)
        self.module, self.function = implementation.load(), implementation.function()
        self.inputs = [self.adapter.to_native(tensor) for tensor in problem.draws[0]]

    def run(self) -> list[Found]:
        """What is found for each question that one call asks autotuners; nothing if it asks none.

        What the implementation raises passes through; `SuiteError` where a search ends without a result.
        """
        kernels = _autotuner.autotuners(self.module)
        names = {id(kernel): name for name, kernel in kernels.items()}
        with _autotuner.forgotten(kernels.values()):
            launches = _autotuner.launches(kernels.values(), self.call)
            return [self.answer(names[id(launch.kernel)], launch) for launch in launches]

    def answer(self, name: str, launch: Launch) -> Found:
        first = launch.kernel.cache[launch.key]
        candidates = launch.candidates(getattr(self.module, SPACE))
        threads = len(os.sched_getaffinity(0))
        _autotuner.compile_all(launch, candidates, threads, lambda: self.announce(FIRST_CALL))
        outcome = race(
            candidates,
            first,
            look=partial(self.look, launch),
            measure=partial(self.measure, launch),
            judge=partial(self.judge, launch),
        )
        launch.choose(outcome.best)
        key, dtypes = _autotuner.named(launch.kernel, launch.key)
        us, first_us = (float(f"{each:.4g}") for each in (outcome.us, outcome.first_us))
        entry = Entry(name, key, dtypes, _autotuner.plain(outcome.best), us, first_us, outcome.candidates)
        return Found(entry, _autotuner.text(outcome.best), _autotuner.text(first), outcome.failed, outcome.wrong)

    def issue(self) -> Any:
        return self.function(*self.inputs, **self.problem.op.arguments(self.problem.case))

    def call(self) -> None:
        self.adapter.wait(self.issue())

    def look(self, launch: Launch, config: Config) -> float | None:
        """The time of a second call, in us by the host's clock. None if the first one fails and the device is well."""
        launch.choose(config)
        self.announce(_doing(config))
        try:
            self.call()
        except Exception as error:
            try:
                torch.cuda.synchronize(self.device)
            except Exception:
                raise SuiteError(f"{_autotuner.text(config)}: {one_line(error)}") from error
            return None
        begin = time.perf_counter_ns()
        self.call()
        return (time.perf_counter_ns() - begin) / 1000

    def measure(self, launch: Launch, configs: Sequence[Config], budget_s: float) -> dict[Config, float]:
        def chosen(config: Config) -> Any:
            launch.choose(config)
            return self.issue()

        by_name = {_autotuner.text(config): config for config in configs}
        timings = timing.measure(
            [timing.Call(name, partial(chosen, config), self.adapter.wait) for name, config in by_name.items()],
            device=self.device,
            budget_s=budget_s,
            seed=self.seed,
            on_progress=lambda name: self.announce(_doing(by_name[name])),
        )
        times = {}
        for name, found in timings.items():
            if found.device_us is None:
                raise SuiteError(f"{name} cannot be measured: {found.error or found.recorder_reason}")
            times[by_name[name]] = found.device_us
        return times

    def judge(self, launch: Launch, config: Config) -> str:
        """What is wrong with the results of this configuration; empty if nothing is."""
        launch.choose(config)
        return examine(
            lambda: self.function,
            self.adapter,
            self.problem,
            claims_determinism=self.implementation.deterministic,
            announce=lambda phase: self.announce(JUDGING if phase == JUDGING else _doing(config)),
        ).reason


def _doing(config: Config) -> str:
    return f"{TIMED_CALL} of {_autotuner.text(config)}"
