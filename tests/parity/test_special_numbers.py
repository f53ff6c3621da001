"""The plain torch and NumPy kernels pass every telling case with special numbers in one operand, in every dtype.

A plain run takes some of these cases in some dtypes only; a user's kernel that computes the same must pass all.
"""

from __future__ import annotations

import pytest
import torch

from suite import ops
from suite.checking import diagnosis
from suite.checking.problem import Problem, Problems
from suite.checking.telling_cases import probe
from suite.implementations import builtin
from suite.problem import specials

CPU = torch.device("cpu")


@pytest.mark.parametrize("line", ["torch", pytest.param("numpy", marks=pytest.mark.thorough)])
@pytest.mark.parametrize("name", ops.alone())
def test_special_numbers_in_one_operand(name: str, line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diagnosis, "BUDGET_S", 0.0)
    op, implementation = ops.get(name), builtin.find(name, line)
    function = implementation.function()
    for dtype, precision in {(case.dtype, case.precision) for case in op.default_cases("cpu")}:
        cases = {key: case for key, case in op.telling_cases(dtype, precision).items() if specials.known(case.inputs)}
        problems = Problems(cases, lambda case: Problem(case, 0, CPU))
        assert probe(lambda case: function, implementation.adapter, problems).reason == "", dtype
