"""Triton's interpreter replaces the functions of triton.language once a launch, and restores them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
import triton
import triton.language as tl

from triton_kernels._interpreter import INTERPRET, _replace_once


class Scope:
    def __init__(self) -> None:
        self.restored = 0

    def restore(self) -> None:
        self.restored += 1


def test_functions_that_a_kernel_calls_find_the_language_replaced() -> None:
    scopes: list[Scope] = []

    def patch(function: Any) -> Scope:
        scopes.append(Scope())
        return scopes[-1]

    replace = _replace_once(patch, Scope)
    kernel, other = (SimpleNamespace(__globals__=names) for names in ({"tl": tl}, {"tl": tl, "core": tl.core}))
    launch = replace(kernel)
    replace(kernel).restore()
    assert (len(scopes), scopes[0].restored) == (1, 0)
    replace(other)
    assert len(scopes) == 2, "of another module, which names more"
    launch.restore()
    assert scopes[0].restored == 1
    replace(kernel)
    assert len(scopes) == 3, "of the next launch"


@triton.jit
def add(x, y):
    return x + y


@triton.jit
def fails(x_ptr):
    tl.static_assert(add(tl.program_id(0), 1) == 0, "no luck")


@triton.jit
def add_one(x_ptr):
    tl.store(x_ptr, add(tl.load(x_ptr), 1))


@pytest.mark.skipif(not INTERPRET, reason="needs Triton's interpreter")
def test_the_language_is_restored_after_a_launch_and_after_one_that_fails() -> None:
    x, load = torch.zeros(1, dtype=torch.int32), tl.load
    with pytest.raises(Exception, match="no luck"):
        fails[(1,)](x)
    assert tl.load is load
    add_one[(1,)](x)
    assert tl.load is load
    assert x.item() == 1
