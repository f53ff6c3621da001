"""Variants of adam_step: other corrections, another place for eps, the weight decay, stale moments, other digits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch

from suite import ops
from suite.numerics.bounds import MARGIN, limit
from suite.problem.case import Case
from suite.problem.variant import Inputs, Part, Variant
from suite.variants._rounding import rounded, sixteen_bit_formats

MAX_ELEMENTS = 2**20
"""Largest number of parameters; every variant computes all of them again."""


def same(x: torch.Tensor) -> torch.Tensor:
    return x


@dataclass(frozen=True)
class Step:
    """A step in float64, with the change that a mistake makes.

    steps1, steps2: numbers of the step in the corrections of m and v. square: is applied to the gradient for v. root:
    is applied to v. moments: changes both moments as they are stored. stale_m, stale_v: the parameters move by the
    moment before the step. eps_first: eps is added before v is corrected; eps_inside: under the root. decay: returns
    the parameter and the gradient, from both.
    """

    param: torch.Tensor
    grad: torch.Tensor
    m: torch.Tensor
    v: torch.Tensor
    at: dict[str, Any]
    steps1: float
    steps2: float
    square: Callable[[torch.Tensor], torch.Tensor] = torch.square
    root: Callable[[torch.Tensor], torch.Tensor] = torch.sqrt
    moments: Callable[[torch.Tensor], torch.Tensor] = same
    stale_m: bool = False
    stale_v: bool = False
    eps_first: bool = False
    eps_inside: bool = False
    direction: float = -1.0
    decay: Callable[[torch.Tensor, torch.Tensor], tuple[torch.Tensor, torch.Tensor]] | None = None

    def run(self) -> torch.Tensor:
        """Return the three results, joined."""
        at, (param, grad) = self.at, self.decayed()
        m = self.moments(at["beta1"] * self.m + (1.0 - at["beta1"]) * grad)
        v = self.moments(at["beta2"] * self.v + (1.0 - at["beta2"]) * self.square(grad))
        used_m, used_v = self.m if self.stale_m else m, self.v if self.stale_v else v
        corrected = used_v / self.correction("beta2", self.steps2)
        if self.eps_first:
            denominator = (self.root(used_v) + at["eps"]) / self.correction("beta2", self.steps2) ** 0.5
        elif self.eps_inside:
            denominator = self.root(corrected + at["eps"])
        else:
            denominator = self.root(corrected) + at["eps"]
        step = at["lr"] * used_m / self.correction("beta1", self.steps1) / denominator
        return torch.cat([param + self.direction * step, m, v])

    def decayed(self) -> tuple[torch.Tensor, torch.Tensor]:
        if self.decay is not None:
            return self.decay(self.param, self.grad)
        if self.at["decoupled"]:
            return self.param * (1.0 - self.at["lr"] * self.at["weight_decay"]), self.grad
        return self.param, self.grad + self.at["weight_decay"] * self.param

    def correction(self, beta: str, steps: float) -> float:
        return float(1.0 - self.at[beta] ** steps)


def variants(inputs: Inputs, case: Case, part: Part) -> Iterator[Variant]:
    if not 0 < case["N"] <= MAX_ELEMENTS:
        return
    at = ops.get("adam_step").arguments(case)
    param, grad, m, v = (each.double() for each in inputs)
    right = Step(param, grad, m, v, at, at["step"], at["step"])
    errors = _errors(inputs, case)
    for mistake, changed in _mistakes(right, case):
        value = changed.run()
        rounding = torch.cat([limit(0.0, x, kind) for x, kind in zip(value.chunk(3), _kinds(case), strict=True)])
        yield Variant(mistake, value[part], (errors + rounding)[part])


def _kinds(case: Case) -> tuple[str, ...]:
    return ops.get("adam_step").output_dtypes(case)


def _errors(inputs: Inputs, case: Case) -> torch.Tensor:
    """Return the error that each result may have before it is rounded, with the margin of a bound."""
    found = torch.zeros(3 * case["N"], dtype=torch.float64, device=inputs[0].device)
    for truth in ops.get("adam_step").truth(inputs, case):
        found[truth.index] = (truth.limit - limit(0.0, truth.value, truth.dtype)).nan_to_num(0.0, 0.0)
    return found * MARGIN


def _mistakes(right: Step, case: Case) -> Iterator[tuple[str, Step]]:
    at, step = right.at, right.at["step"]
    yield "m was not corrected for its bias", replace(right, steps1=1e9)
    yield "v was not corrected for its bias", replace(right, steps2=1e9)
    yield "m and v were not corrected for their bias", replace(right, steps1=1e9, steps2=1e9)
    for name, other in (("before", step - 1), ("after", step + 1)):
        if other > 0:
            yield f"the corrections were of the step {name}", replace(right, steps1=other, steps2=other)
    yield "the correction of m was 1 - beta1", replace(right, steps1=1)
    yield "the correction of v was 1 - beta2", replace(right, steps2=1)
    yield "the step was in the direction of the gradient", replace(right, direction=1.0)
    yield "the square root of v was left out", replace(right, root=same)
    yield "the gradient was not squared", replace(right, square=torch.abs)
    yield "the parameters moved by the m before", replace(right, stale_m=True)
    yield "the parameters moved by the v before", replace(right, stale_v=True)
    yield "eps was left out", replace(right, at={**at, "eps": 0.0})
    yield "eps was inside the root", replace(right, eps_inside=True)
    yield "eps was added before v was corrected", replace(right, eps_first=True)
    exchanged = {**at, "beta1": at["beta2"], "beta2": at["beta1"]}
    yield "beta1 and beta2 were exchanged", replace(right, at=exchanged)
    yield "m was beta1 g + (1 - beta1) m", replace(right, m=right.grad, grad=right.m)
    yield from _decays(right)
    for kind in sixteen_bit_formats(case.dtype):
        yield f"m and v were rounded to {kind}", replace(right, moments=partial(rounded, kind=kind))
        if kind != case.dtype:
            yield f"the gradient was rounded to {kind}", replace(right, grad=rounded(right.grad, kind))
            yield f"the parameters were rounded to {kind}", replace(right, param=rounded(right.param, kind))


def _decays(right: Step) -> Iterator[tuple[str, Step]]:
    """Mistakes with the weight decay."""
    weight, lr = right.at["weight_decay"], right.at["lr"]
    if not weight:
        return
    yield "the weight decay was left out", replace(right, decay=lambda p, g: (p, g))
    yield "the weight decay was not multiplied by lr", replace(right, decay=lambda p, g: (p * (1.0 - weight), g))
    yield "the weight decay had the other sign", replace(right, at={**right.at, "weight_decay": -weight})
    if right.at["decoupled"]:
        yield "the weight decay was added to the gradient", replace(right, decay=lambda p, g: (p, g + weight * p))
    else:
        yield "the weight decay was decoupled", replace(right, decay=lambda p, g: (p * (1.0 - lr * weight), g))
