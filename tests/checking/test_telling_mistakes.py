"""Telling cases: mistakes in a corner, each beside the right implementation, which a plain run must refuse."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from checked_calls import CPU, TORCH

from suite import ops
from suite.checking.problem import Problem, Problems
from suite.checking.telling_cases import probe
from suite.implementations import builtin

Function = Callable[..., Any]


def last_block_of_columns(right: Function) -> Function:
    """The target is looked for in whole blocks of 4096 columns only."""

    def cross_entropy(logits: torch.Tensor, target: torch.Tensor, **arguments: Any) -> Any:
        loss, gradient = right(logits, target, **arguments)
        whole = logits.shape[1] // 4096 * 4096
        missed = target >= (whole or logits.shape[1])
        loss[missed] += logits[missed, target[missed]].float()
        return loss, gradient

    return cross_entropy


def index_of_zero(right: Function) -> Function:
    """An index of 0 is taken for none given."""

    def function(*operands: torch.Tensor, ignore_index: int = -100, **arguments: Any) -> Any:
        return right(*operands, ignore_index=ignore_index or -100, **arguments)

    return function


def first_of_equals_if_windows_overlap(right: Function) -> Function:
    """Windows that do not overlap are searched from their end."""

    def max_pool2d_grad(
        x: torch.Tensor, dy: torch.Tensor, *, window: tuple[int, int], stride: int = 1, padding: int = 0
    ) -> torch.Tensor:
        whole = all((size - taps) % stride == 0 for size, taps in zip(x.shape[1:3], window, strict=True))
        if padding or max(window) > stride or not whole:
            return right(x, dy, window=window, stride=stride, padding=padding)
        return right(x.flip(1, 2), dy.flip(1, 2), window=window, stride=stride).flip(1, 2)

    return max_pool2d_grad


def largest_from_a_finite_number(right: Function) -> Function:
    """A window of -inf has no largest pixel, so that its gradient is lost."""

    def max_pool2d_grad(
        x: torch.Tensor, dy: torch.Tensor, *, window: tuple[int, int], stride: int = 1, padding: int = 0
    ) -> torch.Tensor:
        if dy.numel():
            images = x.float().permute(0, 3, 1, 2)
            pooled = torch.nn.functional.max_pool2d(images, window, stride, padding).permute(0, 2, 3, 1)
            dy = torch.where(pooled < -1e38, 0.0, dy).to(dy.dtype)
        return right(x, dy, window=window, stride=stride, padding=padding)

    return max_pool2d_grad


@pytest.mark.parametrize(
    ("name", "mistake", "cases"),
    [
        ("cross_entropy", last_block_of_columns, "^last_column"),
        ("cross_entropy", index_of_zero, "ignore_first"),
        ("linear_cross_entropy", index_of_zero, "ignore_first"),
        ("max_pool2d_grad", first_of_equals_if_windows_overlap, "^ties"),
        ("max_pool2d_grad", largest_from_a_finite_number, "^minus_infinity$"),
    ],
)
def test_a_mistake_in_a_corner_is_refused(name: str, mistake: Callable[[Function], Function], cases: str) -> None:
    """`cases`: a pattern of the names of the cases that are tried."""
    right, all_cases = builtin.find(name, "torch").function(), ops.get(name).telling_cases("float32", "ieee")
    some = {label: case for label, case in all_cases.items() if re.search(cases, label)}
    tried = Problems(some, lambda case: Problem(case, 0, CPU))
    assert not probe(lambda case: right, TORCH, tried).reason
    assert probe(lambda case: mistake(right), TORCH, tried).reason
