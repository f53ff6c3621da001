"""Shared by the tests of the checked call: a small problem, and `run`, which checks a function on it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from suite import frameworks, ops
from suite.checking.check import CheckResult, check
from suite.checking.problem import Problem
from suite.frameworks.base import Adapter

CPU = torch.device("cpu")
TORCH = frameworks.get("torch")
JAX = frameworks.get("jax")
NUMPY = frameworks.get("numpy")


def problem(
    operation: str = "vector_add", shape: tuple[int, ...] = (1000,), dtype: str = "float32", **kw: Any
) -> Problem:
    return Problem(ops.get(operation).case(shape, dtype, **kw), 0, CPU)


def run(function: Callable[..., Any], adapter: Adapter = TORCH, at: Problem | None = None, **kw: Any) -> CheckResult:
    return check(lambda: function, adapter, at or problem(), **kw)


def kind(found: CheckResult) -> str:
    """The kind of the refusal."""
    assert not found.agrees
    return found.reason.split(":")[0]
