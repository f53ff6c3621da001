"""Triton's interpreter searches triton.language once a process, and replaces and restores its functions each launch."""

from __future__ import annotations

import importlib
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import triton
import triton.language as tl

from triton_kernels._runtime.interpreter import INTERPRET, _converts_quickly, _replace_once


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


@pytest.mark.skipif(not INTERPRET, reason="needs Triton's interpreter")
@pytest.mark.parametrize("kind", [tl.float8e4nv, tl.float8e5])
def test_numbers_of_8_bits_are_converted_once_by_the_interpreter(kind: Any) -> None:
    from triton.runtime import interpreter

    sizes: list[int] = []
    own = interpreter._convert_float.__closure__[0].cell_contents
    convert = _converts_quickly(lambda bits, *types: sizes.append(bits.size) or own(bits, *types))
    codes = torch.arange(-(2**15), 2**15, 7, dtype=torch.int32).to(torch.int8).reshape(3, -1).numpy()
    for _ in range(2):
        found = convert(codes, kind, tl.float32, None)
        assert (found == own(codes, kind, tl.float32, None)).all()
        assert found.shape == codes.shape
    assert sizes == [256]


@triton.jit
def one_after_the_other(a, b, c, d):
    return a * c, b * c + d


@triton.jit
def fold(x_ptr, out_ptr, AXIS: tl.constexpr, KEEP: tl.constexpr, SIZE: tl.constexpr):
    at = tl.arange(0, 2)[:, None, None] * 32 + tl.arange(0, 8)[None, :, None] * 4 + tl.arange(0, 4)[None, None, :]
    x = tl.load(x_ptr + at)
    factor, term = tl.reduce((x, x + 1), AXIS, one_after_the_other, keep_dims=KEEP)
    offs = tl.arange(0, SIZE)
    tl.store(out_ptr + offs, tl.reshape(factor, (SIZE,)))
    tl.store(out_ptr + SIZE + offs, tl.reshape(term, (SIZE,)))


@pytest.mark.skipif(not INTERPRET, reason="needs Triton's interpreter")
@pytest.mark.parametrize(("axis", "keep"), [(0, False), (1, False), (2, True), (None, True)])
def test_a_reduction_by_a_function_of_ones_own_keeps_the_order(axis: int | None, keep: bool) -> None:
    x = torch.randint(-9, 9, (2, 8, 4), dtype=torch.int32, generator=torch.Generator().manual_seed(0))
    parts = list(x.flatten() if axis is None else x.unbind(axis))
    factor, term = parts[0], parts[0] + 1
    for each in parts[1:]:
        factor, term = factor * each, term * each + each + 1
    out = torch.empty(2, term.numel(), dtype=torch.int32)
    fold[(1,)](x, out, AXIS=axis, KEEP=keep, SIZE=term.numel())
    assert torch.equal(out, torch.stack((factor.flatten(), term.flatten())))


@pytest.mark.skipif(not INTERPRET, reason="needs Triton's interpreter")
def test_a_reduction_combines_blocks() -> None:
    from triton.runtime import interpreter

    def of(array: Any) -> Any:
        return SimpleNamespace(handle=SimpleNamespace(data=array), dtype=tl.int32)

    calls: list[Any] = []
    combine = SimpleNamespace(fn=lambda a, b: calls.append(a) or of(a.handle.data ^ b.handle.data))
    x = torch.arange(64, dtype=torch.int32).reshape(2, 32)
    (found,) = interpreter.ReduceOps(0, combine, False).generic_reduce((of(x.numpy()),))
    assert found.handle.data.tolist() == (x[0] ^ x[1]).tolist()
    assert len(calls) == 1


@pytest.mark.skipif(not INTERPRET, reason="TRITON_INTERPRET=1 is not set")
def test_a_tall_product_has_narrow_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """With tiles of 256 x 256 the products of data_parallel_grad at M=2, N=65795, K=2 took longer than a call may."""
    matmul = importlib.import_module("triton_kernels.matmul")
    tiles = []
    monkeypatch.setattr(matmul, "launch", lambda kernel, grid, *given, **constants: tiles.append(constants))
    matmul.matmul(torch.zeros(65795, 2), torch.zeros(2, 3))
    matmul.matmul(torch.zeros(300, 300), torch.zeros(300, 17))
    blocks = [tuple(each[f"BLOCK_{name}"] for name in "MNK") for each in tiles]
    assert blocks == [(256, 16, 16), (256, 32, 256)]
