"""The inputs and parameters that change nothing in the result of a reference, found by changing one at a time.

A kernel that ignores them is right, so that an ok says nothing about them. Usually the reference has a mistake.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from suite.custom.program import Program
from suite.custom.truth import REPEAT_TOLERANCE, Tensors, exact
from suite.custom.varied import varied
from suite.problem.case import Case

BUDGET_S = 20.0
"""Time after which no further input or parameter is changed."""
MAX_NAMED = 5


@dataclass(frozen=True)
class Dependence:
    """sentences: on inputs and parameters that change nothing. unexamined: the number of inputs and parameters that
    were not changed."""

    sentences: tuple[str, ...] = ()
    unexamined: int = 0


def dependence(program: Program, case: Case, device: torch.device, on_run: Callable[[], None]) -> Dependence:
    """Change each input and each parameter of the reference. `on_run` is called before each of its runs."""
    inputs, others = (_tensors(program, case, seed, device) for seed in (0, 1))
    names, weights = program.input_names(case), program.weights(case)
    end = time.monotonic() + BUDGET_S

    def result(given: Tensors) -> torch.Tensor:
        on_run()
        return exact(program, case, given)

    value = result(inputs)
    changes = [_other(*pair) for pair in zip(inputs, others, strict=True)]
    same = _Same(value)
    unused, unexamined = [], 0
    for i, change in enumerate(changes):
        if change is None:
            continue
        if time.monotonic() > end:
            unexamined += 1
        elif same(result((*inputs[:i], change, *inputs[i + 1 :]))):
            unused.append(names[i])
    unused_weights = []
    for name, weight in weights.items():
        if time.monotonic() > end:
            unexamined += 1
            continue
        before = weight.clone()
        weight.copy_(varied(weight, seed=0))
        try:
            unused_weights += [name] if same(result(inputs)) else []
        finally:
            weight.copy_(before)
    if len(unused) == len(inputs):
        return Dependence(("the result is the same for all inputs",) if same(result(others)) else (), unexamined)
    return Dependence((*_sentence("input", unused), *_sentence("parameter", unused_weights)), unexamined)


class _Same:
    """Tells whether results equal the first one, but for roundings."""

    def __init__(self, value: torch.Tensor) -> None:
        self._value, self._finite = value, value.isfinite()
        self._size = float(torch.where(self._finite, value, 0).abs().max()) if value.numel() else 0.0

    def __call__(self, other: torch.Tensor) -> bool:
        finite, value = self._finite, self._value
        if other.shape != value.shape or not torch.equal(other.isfinite(), finite):
            return False
        placed = torch.equal(*(each[~finite].nan_to_num(0.0) for each in (other, value)))
        difference = (other - value)[finite].abs()
        return placed and (not difference.numel() or float(difference.max()) <= REPEAT_TOLERANCE * self._size)


def _tensors(program: Program, case: Case, seed: int, device: torch.device) -> Tensors:
    return tuple(each for each in program.draw(case, seed, device) if isinstance(each, torch.Tensor))


def _other(value: torch.Tensor, drawn: torch.Tensor) -> torch.Tensor | None:
    """Another value of an input: that of another draw, if it differs. None if no other valid value is known."""
    if value.numel() == 0 or drawn.shape != value.shape:
        return None
    if not torch.equal(value.nan_to_num(), drawn.nan_to_num()):
        return drawn
    if value.is_floating_point():
        return varied(value, seed=0)
    return ~value if value.dtype is torch.bool else None


def _sentence(kind: str, names: Sequence[str]) -> tuple[str, ...]:
    """`the result does not depend on the parameters a, b`; nothing if there are none."""
    if not names:
        return ()
    kinds = kind if len(names) == 1 else f"{kind}s"
    more = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
    return (f"the result does not depend on the {kinds} {', '.join(names[:MAX_NAMED])}{more}",)
