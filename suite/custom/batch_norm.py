"""Stochastic arithmetic of a batch norm, in one step: its simpler operations would each write and read all numbers.

m, v = mean(x), mean((x - m)^2)     over the batch in training, else the running ones
y = (x - m) s weight + bias         s = 1 / sqrt(v + eps)

mean         a sum of n terms, which vary by U sqrt(n/3): U / sqrt(3) of their root mean square; the sum by U sqrt(n)/3
variance     likewise; the terms' own part is that of normal numbers
s            a sum with eps and a root
y            a difference and two products in float32, and the rounding of the result
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from suite.numerics.bounds import EXP_ULPS
from suite.numerics.formats import unit_roundoff

aten = torch.ops.aten
FORMS = (
    aten.native_batch_norm.default,
    aten._native_batch_norm_legit.default,
    aten._native_batch_norm_legit.no_stats,
    aten._native_batch_norm_legit_no_training.default,
)
U = unit_roundoff("float32")


@dataclass(frozen=True)
class Normalized:
    """Float64 results before their rounding, the largest errors of y, and the new values of arguments that change."""

    y: torch.Tensor
    size: torch.Tensor
    saved: tuple[torch.Tensor, ...]
    running: dict[str, torch.Tensor]


def normalized(func: Any, args: Any, kwargs: Any, noise: Callable[[torch.Tensor], torch.Tensor]) -> Normalized:
    """Compute one of FORMS. noise: returns random numbers, uniform within -1 and 1 or a multiple, like a tensor."""
    given = {each.name: value for each, value in zip(func._schema.arguments, args, strict=False)} | kwargs
    x = given["input"].double()
    shape = [1, -1, *[1] * (x.ndim - 2)]
    saved: tuple[torch.Tensor, ...] = ()
    running: dict[str, torch.Tensor] = {}
    if given.get("training", False):
        n = x.numel() // max(1, x.shape[1])
        variance, mean = _moments(x, n, noise)
        for name, new in (("running_mean", mean), ("running_var", variance * (n / max(1, n - 1)))):
            if given.get(name) is not None:
                running[name] = given[name].double().lerp_(new, given["momentum"])
    else:
        variance, mean = given["running_var"].double(), given["running_mean"].double()
    s = (variance + given["eps"]).rsqrt_()
    s = s + noise(s) * s * U * math.hypot(1.0, 1.0 + 2.0 * EXP_ULPS)
    if given.get("training", False):
        saved = mean, s
    weight, bias = given["weight"], given["bias"]
    factor = s if weight is None else s * weight
    term = (x - mean.view(shape)).mul_(factor.view(shape))
    y = term if bias is None else term + bias.double().view(shape)
    u = unit_roundoff(str(given["input"].dtype).removeprefix("torch."))
    return Normalized(y, torch.hypot(term * (math.sqrt(3.0) * U), y * u), saved, running)


def _moments(x: torch.Tensor, n: int, noise: Callable[[torch.Tensor], torch.Tensor]) -> tuple[torch.Tensor, ...]:
    """Return the variance and the mean of each channel of x, with random errors."""
    variance, mean = torch.var_mean(x, [0, *range(2, x.ndim)], correction=0)
    sums = U * math.hypot(1.0, math.sqrt(n / 3.0))
    parts = (
        (variance, noise(variance), 2.0 * (variance * (mean.square() + 3.0 * variance)).sqrt()),
        (mean, noise(mean), (mean.square() + variance).sqrt()),
    )
    return tuple(value + noise(value) * value * sums + other * terms * U for value, other, terms in parts)
