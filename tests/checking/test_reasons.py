"""The reason of a wrong result: it names the mistake, or nothing; never another mistake."""

from __future__ import annotations

import re

import pytest
import torch
from checked_calls import TORCH
from mistakes import Mistake, mistakes
from thinning import chosen_by

from suite import ops
from suite.checking.check import CheckResult, check
from suite.checking.problem import Problem
from suite.problem.case import Case

MISTAKES = mistakes()


class PreparedProblem(Problem):
    """A problem whose inputs a mistake has changed."""

    def __init__(self, mistake: Mistake) -> None:
        self.prepare = mistake.prepare
        op = ops.get(mistake.operation)
        case = op.case(mistake.shape, mistake.dtype, inputs=mistake.inputs, **mistake.options)
        super().__init__(case, 3, torch.device("cpu"))

    def _draw(self, case: Case, seed: int, device: torch.device) -> tuple[torch.Tensor, ...]:
        from suite.checking.memory import copies_with_bands

        return copies_with_bands(self.prepare(*self.op.make_inputs(case, seed, device)))


def found(mistake: Mistake) -> CheckResult:
    return check(lambda: mistake.kernel, TORCH, PreparedProblem(mistake))


@pytest.mark.parametrize(
    "mistake", chosen_by(MISTAKES, lambda each: {each.operation, each.dtype, each.inputs}, lambda each: each.id)
)
def test_the_reason_names_the_mistake(mistake: Mistake) -> None:
    result = found(mistake)
    assert not result.agrees
    if mistake.says:
        assert re.search(mistake.says, result.diagnosis), result.diagnosis
    else:
        assert result.diagnosis == ""
