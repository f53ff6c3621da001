"""For tests of operations and verdicts: judging an output on the CPU, and which error ratios are out of order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from suite.checking.judge import Verdict, judge
from suite.problem.case import Case
from suite.problem.operation import Operation

CPU = torch.device("cpu")
RIGHT = 0.7
"""Above the error ratio of every right kernel."""


def judge_output(op: Operation, case: Case, output: torch.Tensor, seed: int = 0) -> Verdict:
    """The verdict on `output` as the result of `case` with the inputs of `seed`."""
    inputs = op.make_inputs(case, seed, CPU)
    return judge(output, op.truth(inputs, case), shape=op.output_shape(case), dtype=op.output_dtype(case))


def called(line: Callable[..., Any], device: str, *tensors: torch.Tensor, **options: Any) -> Any:
    """The result, or the results, on the CPU of `line` for `tensors`, which it gets on `device`."""
    found = line(*(each.to(device) for each in tensors), **options)
    return tuple(each.cpu() for each in found) if isinstance(found, tuple) else found.cpu()


def out_of_order(ratios: dict[str, float], *, wrong: bool) -> dict[str, float]:
    """The ratios of wrong arithmetics that are accepted, or of right ones that come near the bound."""
    return {name: ratio for name, ratio in ratios.items() if (ratio <= 1.0 if wrong else ratio >= RIGHT)}
