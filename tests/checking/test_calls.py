"""Results of another type, shape, dtype or layout are refused before their values are compared."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from checked_calls import CPU, JAX, NUMPY, TORCH, kind, run

from suite import ops
from suite.checking.check import check
from suite.checking.problem import Problem
from suite.frameworks.base import Adapter


class Pretender(torch.Tensor):
    """A subclass of torch.Tensor, which could override any operator."""


@pytest.mark.parametrize(
    ("result", "expected", "said"),
    [
        (lambda c: None, "type", "a NoneType, not a strided torch.Tensor"),
        (lambda c: (c,), "type", "a tuple"),
        (lambda c: c.numpy(), "type", "a ndarray"),
        (lambda c: c.as_subclass(Pretender), "type", "a Pretender"),
        (lambda c: c.to_sparse(), "type", "a Tensor"),
        (lambda c: torch.complex(-c, -c).conj().imag, "type", "a tensor with the neg bit"),
        (lambda c: torch.complex(c, c).conj(), "type", "a tensor with the conj bit"),
        (lambda c: c[:-1], "shape", "(999,), expected (1000,)"),
        (lambda c: c[None], "shape", "(1, 1000)"),
        (lambda c: c.double(), "dtype", "float64, expected float32"),
        (lambda c: c.bool(), "dtype", "bool"),
        (lambda c: c.to("meta"), "device", "on meta, expected cpu"),
        (lambda c: c[:1].expand(1000), "strides", "(0,)"),
        (lambda c: torch.stack([c, c], 1)[:, 0], "strides", "(2,)"),
    ],
    ids=[
        "None",
        "(c,)",
        "c.numpy()",
        "c.as_subclass(Pretender)",
        "c.to_sparse()",
        "the neg bit",
        "the conj bit",
        "c[:-1]",
        "c[None]",
        "c.double()",
        "c.bool()",
        "c.to('meta')",
        "c[:1].expand(1000)",
        "torch.stack([c, c], 1)[:, 0]",
    ],
)
def test_a_result_of_another_form_is_refused_before_it_is_compared(
    result: Callable[[torch.Tensor], Any], expected: str, said: str
) -> None:
    found = run(lambda a, b: result(a + b))
    assert kind(found) == expected
    assert said in found.reason
    assert found.error_ratio == math.inf
    assert found.deterministic == ""


@pytest.mark.parametrize(
    ("adapter", "result", "expected"),
    [
        (NUMPY, lambda c: c[::-1], "strides"),
        (NUMPY, lambda c: np.broadcast_to(c[:1], c.shape), "strides"),
        (NUMPY, lambda c: c.astype(">f4"), "dtype"),
        (NUMPY, lambda c: c.astype(object), "dtype"),
        (NUMPY, lambda c: c.astype(np.longdouble), "dtype"),
        (NUMPY, lambda c: np.matrix(c), "type"),
        (NUMPY, lambda c: torch.from_numpy(c), "type"),
        (NUMPY, lambda c: np.ma.masked_array(c), "type"),
        (JAX, lambda c: np.asarray(c), "type"),
        (JAX, lambda c: torch.from_dlpack(c), "type"),
        (JAX, lambda c: c > 0, "dtype"),
        (JAX, lambda c: c[:, None], "shape"),
    ],
    ids=[
        "numpy: c[::-1]",
        "numpy: np.broadcast_to(c[:1], c.shape)",
        "numpy: c.astype('>f4')",
        "numpy: c.astype(object)",
        "numpy: c.astype(np.longdouble)",
        "numpy: np.matrix(c)",
        "numpy: torch.from_numpy(c)",
        "numpy: np.ma.masked_array(c)",
        "jax: np.asarray(c)",
        "jax: torch.from_dlpack(c)",
        "jax: c > 0",
        "jax: c[:, None]",
    ],
)
def test_so_are_arrays_of_other_frameworks(adapter: Adapter, result: Callable[[Any], Any], expected: str) -> None:
    assert kind(run(lambda a, b: result(a + b), adapter)) == expected


def test_the_form_is_required_of_every_call() -> None:
    calls: list[int] = []

    def add(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        calls.append(1)
        return (a + b).double() if len(calls) == 2 else a + b

    assert kind(run(add)) == "dtype"


def stored_as_a(values: torch.Tensor, a: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(a).copy_(values)


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (lambda a, b: stored_as_a(a + b, a), ""),
        (lambda a, b: stored_as_a((a + b).reshape(-1).view(a.mT.shape).mT, a), "value: "),
        (lambda a, b: a.add_(b), "aliases input: "),
        (lambda a, b: torch.empty(*a.shape, 2)[..., 0].copy_(a + b), "strides: "),
    ],
    ids=["right", "row-major in the memory of another order", "in the operand", "with gaps"],
)
def test_a_result_stored_as_an_operand_is_judged_by_its_values(function: Callable[..., Any], reason: str) -> None:
    problem = Problem(ops.get("matrix_add").case((5, 7), layout="tt"), 0, CPU)
    found = check(lambda: function, TORCH, problem)
    assert found.agrees is not bool(reason), found.reason
    assert found.reason.startswith(reason)
    assert stored_as_a(*problem.draws[0]).stride() == (1, 5)
