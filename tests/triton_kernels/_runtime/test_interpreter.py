"""Triton's interpreter searches triton.language once a process, and replaces and restores its functions each launch."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
import triton
import triton.language as tl

from triton_kernels._runtime.interpreter import INTERPRET, _replace_once


class Scope:
    """Replaces attributes and restores them, as the interpreter's own."""

    def __init__(self) -> None:
        self._changes: list[tuple[Any, str, Any]] = []

    def set_attr(self, owner: Any, name: str, value: Any) -> None:
        self._changes.append((owner, name, getattr(owner, name)))
        setattr(owner, name, value)

    def restore(self) -> None:
        while self._changes:
            setattr(*self._changes.pop())


def test_functions_that_a_kernel_calls_find_the_language_replaced() -> None:
    language, searched = SimpleNamespace(load="compiled", store="compiled"), []

    def patch(function: Any) -> Scope:
        searched.append(function.__globals__)
        scope = Scope()
        for name in ("load", "store", "load"):
            scope.set_attr(language, name, "interpreted")
        return scope

    replace = _replace_once(patch, Scope)
    for _ in range(2):
        launch = replace(SimpleNamespace(__globals__={"tl": tl}))
        assert (language.load, language.store) == ("interpreted", "interpreted")
        replace(SimpleNamespace(__globals__={"core": tl.core})).restore()
        assert (language.load, language.store) == ("interpreted", "interpreted"), "the launch goes on"
        launch.restore()
        assert (language.load, language.store) == ("compiled", "compiled")
    assert [list(names.values()) for names in searched] == [[tl, tl.core]], "once, in both modules"


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
    x, load, core_load = torch.zeros(1, dtype=torch.int32), tl.load, tl.core.load
    with pytest.raises(Exception, match="no luck"):
        fails[(1,)](x)
    assert tl.load is load
    add_one[(1,)](x)
    assert (tl.load, tl.core.load) == (load, core_load)
    assert x.item() == 1


@triton.jit
def widen(x_ptr, out_ptr, SIZE: tl.constexpr):
    offs = tl.arange(0, SIZE)
    tl.store(out_ptr + offs, tl.load(x_ptr + offs).to(tl.float32))


@pytest.mark.skipif(not INTERPRET, reason="needs Triton's interpreter")
def test_every_bfloat16_number_is_widened_exactly() -> None:
    x = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16).view(torch.bfloat16)
    out = torch.empty(2**16)
    widen[(1,)](x, out, SIZE=2**16)
    assert torch.equal(out.view(torch.int32), x.view(torch.int16).int() << 16)
