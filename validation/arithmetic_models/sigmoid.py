"""Models of the sigmoid: right ones, and ones with one error of precision."""

from __future__ import annotations

import numpy as np
import torch

from suite import ops
from suite.checking.judge import judge
from validation.arithmetic_models.rounding import CPU, Array, Map, rounded


def sigmoids(dtype: str) -> tuple[dict[str, Map], dict[str, Map]]:
    """Return right functions, and functions with one error of precision, by name."""

    def plain(x: Array) -> Array:
        x = x.astype(np.float32)
        return 1 / (1 + np.exp(-x))

    def with_rounded_exponential(kind: str) -> Map:
        return lambda x: 1 / rounded(1 + rounded(np.exp(-x), kind), kind)

    def from_tanh(x: Array) -> Array:
        return np.float32(0.5) + np.float32(0.5) * np.tanh(np.float32(0.5) * x.astype(np.float32))

    right = {"1 / (1 + exp(-x))": plain}
    if dtype != "float32":
        return right, {f"{dtype} exponential": with_rounded_exponential(dtype)}
    return right, {
        "float16 exponential": with_rounded_exponential("float16"),
        "float16 result": lambda x: rounded(plain(x), "float16"),
        "by tanh, whose error stays where the result is small": from_tanh,
    }


def sigmoid_ratio(function: Map, dtype: str, seed: int = 0, count: int = 20_000) -> float:
    """Return the error ratio of a sigmoid of `count` elements."""
    op = ops.get("sigmoid")
    case = op.case((count,), dtype)
    (x,) = op.make_inputs(case, seed, CPU)
    output = torch.from_numpy(np.asarray(function(x.double().numpy()), np.float64)).to(x.dtype)
    return judge(output, op.truth((x,), case), shape=(count,), dtype=dtype).error_ratio
