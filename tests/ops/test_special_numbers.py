"""Truths of inputs with special numbers: what is a number has a bound, and one number that is left out shows."""

from __future__ import annotations

import pytest
import torch

from suite import ops
from suite.checking.check import judge_draw
from suite.checking.problem import Problem
from suite.problem import specials

CPU = torch.device("cpu")


@pytest.mark.parametrize("name", ops.names())
def test_results_that_are_numbers_have_bounds_that_are(name: str) -> None:
    op = ops.get(name)
    for inputs in specials.names(len(op.operands(op.case(op.usual_shape)))):
        case = op.case(op.usual_shape, inputs=inputs)
        for truth in op.truth(op.make_inputs(case, 0, CPU), case):
            assert bool(truth.limit[truth.value.isfinite()].isfinite().all()), inputs


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_the_end_of_a_long_row_counts_in_16_bits_too(dtype: str) -> None:
    problem = Problem(ops.get("softmax").telling_cases(dtype, "ieee")["peaks"], 0, CPU)
    x = problem.draws[0][0].double()
    e = torch.exp(x - x.amax(dim=1, keepdim=True))
    for counted, agrees in ((e, True), (e[:, :-1], False), (e[:, 1:], False)):
        result = (e / counted.sum(dim=1, keepdim=True)).to(problem.draws[0][0].dtype)
        assert judge_draw(result, problem, 0).agrees is agrees
