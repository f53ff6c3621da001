"""The telling cases of an operation: one implementation is called on each, up to the first that is wrong."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from suite import ops
from suite.checking.calls import LocalCaller, RefusedError
from suite.checking.check import NO_TIME, check_briefly
from suite.checking.diagnosis import Diagnosis
from suite.checking.problem import Problem
from suite.checking.repeats import Duration
from suite.frameworks.base import Adapter
from suite.implementations.arguments import missing_parameters
from suite.problem.accepted_cases import added_operands
from suite.problem.case import Case
from suite.problem.specials import kind_of, known


@dataclass(frozen=True)
class ProbeResult:
    """The names of the cases that passed, and what is wrong in the first that did not.

    `not_covered` has the cases that the implementation declined, with its reasons.
    """

    passed: tuple[str, ...]
    reason: str = ""
    diagnosis: Diagnosis = field(default_factory=Diagnosis)
    not_covered: Mapping[str, str] = field(default_factory=dict)

    def then(self, more: ProbeResult) -> ProbeResult:
        """Return the result of these cases, all of which passed, and of `more`."""
        declined = {**self.not_covered, **more.not_covered}
        return ProbeResult((*self.passed, *more.passed), more.reason, more.diagnosis, declined)


def is_beyond(adapter: Adapter, case: Case, device: torch.device) -> bool:
    """True if the framework itself gets a part of the case's inputs wrong (`Adapter.limits`), or takes too long."""
    most, shapes = adapter.most_rows(device), ops.operation(case).output_shapes(case)
    if most is not None and any(size > most for shape in shapes for size in shape[:-1]):
        return True
    limits = adapter.limits(device)
    parts = case.inputs.replace("/", "+").split("+")
    special = [kind_of(part) for part in parts if known(part)]
    kinds = (*parts, *special, *(f"{each}@" for each in special))
    return any(case.dtype in limits.get(kind, ()) for kind in kinds)


def probe(
    function_for: Callable[[Case], Callable[..., Any]],
    adapter: Adapter,
    problems: Mapping[str, Problem],
    repeats: Duration = NO_TIME,
    on_case: Callable[[str], None] = lambda name: None,
) -> ProbeResult:
    """Call the function for each telling case in this process, by name, up to the first that is wrong.

    A case is left out if the implementation does not cover it (`NotImplementedError`, or no parameter for an argument),
    and if the framework itself gets it wrong. repeats: the time for which each call is repeated. on_case: is called
    before each case. Other exceptions pass through.
    """

    def check_case(problem: Problem) -> tuple[str, Diagnosis]:
        function = function_for(problem.case)
        if missing_parameters(function, len(problem.buffers), problem.op.arguments(problem.case)):
            raise NotImplementedError
        return check_briefly(LocalCaller(lambda: function, adapter, problem), problem, repeats)

    return probe_cases(check_case, adapter, problems, on_case)


def _is_optional(problem: Problem) -> bool:
    """True for a case with an option that implementations need not have, or with operands that an option adds."""
    given = dict(problem.case.options)
    beyond = any(option.beyond and option.name in given for option in problem.op.options)
    return beyond or added_operands(problem.op, problem.case) > 0


def probe_cases(
    check_case: Callable[[Problem], tuple[str, Diagnosis]],
    adapter: Adapter,
    problems: Mapping[str, Problem],
    on_case: Callable[[str], None] = lambda name: None,
) -> ProbeResult:
    """Check telling cases as `probe` does, each by `check_case`.

    check_case: returns what is wrong, empty if nothing is, and why. A case with an option that an implementation need
    not have is not noted if it is declined.
    """
    passed: list[str] = []
    declined: dict[str, str] = {}
    for name in problems:
        problem = problems[name]
        if is_beyond(adapter, problem.case, problem.device):
            continue
        on_case(name)
        try:
            reason, diagnosis = check_case(problem)
        except NotImplementedError as error:
            if not _is_optional(problem):
                declined[name] = str(error)
            continue
        except RefusedError as refused:
            reason, diagnosis = str(refused), Diagnosis()
        if reason:
            where = name if name == problem.case.label else f"{name}: {problem.case.label}"
            return ProbeResult(tuple(passed), f"{reason} (in the telling case {where})", diagnosis, declined)
        passed.append(name)
    return ProbeResult(tuple(passed), not_covered=declined)
