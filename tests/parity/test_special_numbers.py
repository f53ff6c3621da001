"""The plain torch and NumPy kernels pass every telling case with special numbers in one operand, in every dtype.

A plain run takes some of these cases in some dtypes only; a user's kernel that computes the same must pass all.
"""

from __future__ import annotations

import pytest
import torch
from thinning import covering_parts

from suite import ops
from suite.checking import diagnosis
from suite.checking.problem import Problem, Problems
from suite.checking.telling_cases import probe
from suite.implementations import builtin
from suite.problem import specials

CPU = torch.device("cpu")


FEW = covering_parts(ops.alone(), lambda name: {ops.get(name).group})
"""An operation of each group."""


@pytest.mark.parametrize(
    ("name", "line", "every"),
    [
        *(pytest.param(name, "torch", False, id=f"{name}-torch-first") for name in FEW),
        *(
            pytest.param(name, line, True, id=f"{name}-{line}-every", marks=pytest.mark.thorough)
            for name in ops.alone()
            for line in ("torch", "numpy")
        ),
    ],
)
def test_special_numbers_in_one_operand(name: str, line: str, every: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """In `make test` some operations, in the first dtype."""
    monkeypatch.setattr(diagnosis, "BUDGET_S", 0.0)
    op, implementation = ops.get(name), builtin.find(name, line)
    function = implementation.function()
    kinds = list(dict.fromkeys((case.dtype, case.precision) for case in op.default_cases("cpu")))
    for dtype, precision in kinds if every else kinds[:1]:
        cases = {key: case for key, case in op.telling_cases(dtype, precision).items() if specials.known(case.inputs)}
        problems = Problems(cases, lambda case: Problem(case, 0, CPU))
        assert probe(lambda case: function, implementation.adapter, problems).reason == "", dtype
