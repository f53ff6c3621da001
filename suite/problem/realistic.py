"""Inputs as in practice: zeros, uniform numbers, integers, activations with outliers, weights of a trained model.

Every operation of the suite takes these families. Each replaces the numbers of the operation's normal inputs and keeps
their scale, operand by operand; operands that hold no floating-point numbers stay as they are. They show how inputs
move speed, power and error; the families that an operation declares are the ones that break kernels.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import torch

from suite.numerics.formats import MAX_FINITE
from suite.problem.case import Case
from suite.problem.family import Family
from suite.problem.numbers import Values
from suite.problem.shape import Shape

Draw = Callable[[Shape, "torch.Generator"], "torch.Tensor"]
"""Draws float32 numbers with a deviation of about 1."""

WEIGHTS = Path(__file__).with_name("weights.npy")
"""Weights of a model that `validation/train_weights.py` trains, divided by the deviation of their layer."""

OUTLIER_SHARE, OUTLIER_ROWS, LEAST_OUTLIER, MOST_OUTLIER = 0.001, 0.75, 6.0, 60.0
"""Activations of language models from 6.7 billion parameters on have outliers of magnitude 6 to 60 in about 0.1% of
their features, at three quarters of the positions: Dettmers et al. 2022, LLM.int8(), arXiv:2208.07339, section 4. They
stay in the same channels for all positions: Xiao et al. 2023, SmoothQuant, arXiv:2211.10438, section 3."""
CHANNEL_SPREAD = 0.5
"""Deviation of the logarithm of a channel's deviation."""


def zeros(shape: Shape, source: torch.Generator) -> torch.Tensor:
    return torch.zeros(shape, device=source.device)


def uniform(shape: Shape, source: torch.Generator) -> torch.Tensor:
    """Between -sqrt(3) and sqrt(3)."""
    return (torch.rand(shape, generator=source, device=source.device) * 2.0 - 1.0) * math.sqrt(3.0)


def integers(shape: Shape, source: torch.Generator) -> torch.Tensor:
    """From -3 to 3: products and short sums are exact in every type."""
    return torch.randint(-3, 4, shape, generator=source, device=source.device).float()


def normal(shape: Shape, source: torch.Generator) -> torch.Tensor:
    return torch.randn(shape, generator=source, device=source.device)


def activations(shape: Shape, source: torch.Generator) -> torch.Tensor:
    """Normal numbers whose deviation differs by channel (the last axis), and a few channels with outliers."""
    device, channels = source.device, shape[-1]
    found = normal(shape, source) * (CHANNEL_SPREAD * normal((channels,), source)).exp()
    many = max(1, round(OUTLIER_SHARE * channels))
    places = torch.randperm(channels, generator=source, device=device)[:many]
    size = torch.rand((many,), generator=source, device=device) * (MOST_OUTLIER - LEAST_OUTLIER) + LEAST_OUTLIER
    sign = torch.randint(0, 2, (many,), generator=source, device=device) * 2.0 - 1.0
    rows = torch.rand(shape[:-1], generator=source, device=device) < OUTLIER_ROWS
    outliers = size * sign * (1.0 + 0.1 * normal((*shape[:-1], many), source))
    found[..., places] = torch.where(rows[..., None], outliers, found[..., places])
    return found


def weights(shape: Shape, source: torch.Generator) -> torch.Tensor:
    """Weights of the trained model, drawn at random with repetition."""
    kept = _kept().to(source.device)
    return kept[torch.randint(len(kept), shape, generator=source, device=source.device)]


@cache
def _kept() -> torch.Tensor:
    import numpy as np

    return torch.from_numpy(np.load(WEIGHTS).astype(np.float32))


@dataclass(frozen=True)
class Kind:
    """The draws of a family: `other` for operands that are no weights, `weight` for those that are. None: as normal."""

    about: str
    other: Draw | None
    weight: Draw | None
    power_of_two: bool = False
    """Whether the scale of an operand is rounded to a power of two, which keeps the numbers' last places."""


KINDS: Mapping[str, Kind] = {
    "zeros": Kind("zeros in every operand; the operation's default sizes", zeros, zeros),
    "uniform": Kind("uniform numbers of the same deviation as normal ones", uniform, uniform),
    "integers": Kind("integers from -3 to 3, times a power of two", integers, integers, power_of_two=True),
    "activations": Kind("heavy tails by channel, and outliers as language models have them", activations, None),
    "weights": Kind("weights of a small trained model", None, weights),
}


def family(name: str, plain: Family, weight_operands: Collection[int]) -> Family:
    """The family of that name for an operation whose normal inputs are `plain`.

    weight_operands: positions of the operands that are weights. If there are none, weights take the place of all.
    """
    kind = KINDS[name]

    def values(shapes: tuple[Shape, ...], case: Case, source: torch.Generator) -> tuple[torch.Tensor, ...]:
        drawn = plain.values(shapes, case, source)
        other = kind.weight if kind.other is None and not weight_operands else kind.other
        draws = [kind.weight if i in weight_operands else other for i in range(len(drawn))]
        return tuple(
            each if draw is None else _replaced(each, draw, source, power_of_two=kind.power_of_two)
            for each, draw in zip(drawn, draws, strict=True)
        )

    typed: Values = values
    return Family(kind.about, typed, dtypes=plain.dtypes)


def _replaced(operand: torch.Tensor, draw: Draw, source: torch.Generator, *, power_of_two: bool) -> torch.Tensor:
    """Other numbers of the operand's scale and type."""
    if not operand.is_floating_point() or not operand.numel():
        return operand
    scale = float(operand.float().square().mean().sqrt())
    scale = scale if 0.0 < scale < math.inf else 1.0
    if power_of_two:
        scale = 2.0 ** round(math.log2(scale))
    wide = torch.float64 if operand.dtype == torch.float64 else torch.float32
    numbers = draw(tuple(operand.shape), source).to(wide) * scale
    largest = MAX_FINITE.get(str(operand.dtype).removeprefix("torch."), math.inf)
    return numbers.clamp_(-largest, largest).to(operand.dtype)
