"""The telling cases of an operation: one implementation, called on each, and the first in which it is wrong."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from suite.checking.calls import RefusedError
from suite.checking.check import LocalCaller, check_briefly
from suite.checking.diagnosis import Diagnosis
from suite.checking.problem import Problem
from suite.frameworks.base import Adapter
from suite.implementations.arguments import missing_parameters


@dataclass(frozen=True)
class Told:
    """What the cases showed: those that passed, by name, and what is wrong in the first that did not."""

    passed: tuple[str, ...]
    reason: str = ""
    diagnosis: Diagnosis = field(default_factory=Diagnosis)


def tell(
    function: Callable[..., Any],
    adapter: Adapter,
    problems: Mapping[str, Problem],
    repeat_s: float = 0.0,
    on_case: Callable[[str], None] = lambda name: None,
) -> Told:
    """Call `function` on the telling cases, by name, up to the first that is wrong; on each again for `repeat_s`.

    A case that the implementation does not cover (`NotImplementedError`, or no parameter for an argument), or that its
    framework gets wrong by itself, is left out. `on_case` is called before each case. What else is raised passes
    through.
    """

    def brief(problem: Problem) -> tuple[str, Diagnosis]:
        refuse_missing_parameters(function, problem)
        return check_briefly(LocalCaller(lambda: function, adapter, problem), problem, repeat_s)

    return tell_by(brief, adapter, problems, on_case)


def refuse_missing_parameters(function: Callable[..., Any], problem: Problem) -> None:
    """Raises `NotImplementedError` for a function that has no parameter for an argument of the case."""
    if missing_parameters(function, len(problem.buffers), problem.op.arguments(problem.case)):
        raise NotImplementedError


def tell_by(
    brief: Callable[[Problem], tuple[str, Diagnosis]],
    adapter: Adapter,
    problems: Mapping[str, Problem],
    on_case: Callable[[str], None] = lambda name: None,
) -> Told:
    """`tell` by a function that says what is wrong in a case, and why; empty if nothing is."""
    passed: list[str] = []
    for name, problem in problems.items():
        if problem.case.dtype in adapter.limits(problem.device).get(problem.case.inputs, ()):
            continue
        on_case(name)
        try:
            reason, diagnosis = brief(problem)
        except NotImplementedError:
            continue
        except RefusedError as refused:
            reason, diagnosis = str(refused), Diagnosis()
        if reason:
            return Told(tuple(passed), f"{reason} (in the telling case {name}: {problem.case.label})", diagnosis)
        passed.append(name)
    return Told(tuple(passed))
