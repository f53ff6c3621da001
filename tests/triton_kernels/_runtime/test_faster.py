"""Faster versions of the interpreter's operations give the bits and types of its own, and its errors."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
import triton
import triton.language as tl

from triton_kernels._runtime.interpreter import INTERPRET

pytestmark = pytest.mark.skipif(not INTERPRET, reason="needs Triton's interpreter")

KINDS = ("int32", "int64", "uint32", "uint8", "float16", "float32", "float64", "bfloat16", "int1")
SHAPES = ((), (8,), (4, 8), (4, 1), (1, 8))
NUMBERS = (0, 1, -3, 2**31, 2**40, 0.5, -0.0, 1e-3, 1e300, float("inf"), True)
BINARY = [f"__{r}{name}__" for name in ("add", "sub", "mul", "truediv", "floordiv", "mod") for r in ("", "r")]
BINARY += [f"__{name}__" for name in ("and", "or", "xor", "rand", "ror", "rxor", "lt", "le", "gt", "ge", "eq", "ne")]


@pytest.fixture
def language() -> Iterator[Callable[[Any, str], Any]]:
    """A function that returns the interpreter's own version of what it puts into triton.language."""
    from triton.runtime import interpreter

    scope = interpreter._LangPatchScope()
    for owner in (tl.tensor, tl):
        interpreter._patch_builtin(owner, interpreter.interpreter_builder, scope)
    interpreter._patch_lang_core(tl, scope)
    found = {(id(owner), name): value for owner in (tl.tensor, tl) for name, value in vars(owner).items()}
    yield lambda owner, name: found[id(owner), name]
    scope.restore()


@cache
def make(kind: str, shape: tuple[int, ...], nan: float = np.nan) -> Any:
    """A tensor of small numbers; the floating-point ones have fractions, zeros and `nan`."""
    from triton.runtime.interpreter import TensorHandle

    element = getattr(tl, kind)
    given = np.random.default_rng(len(shape)).integers(0 if kind[0] == "u" else -9, 9, shape or (1,))
    if kind == "bfloat16":
        data = (given / 4).astype(np.float32).view(np.uint32).__rshift__(16).astype(np.uint16)
    elif kind.startswith("float"):
        data = (given / 4).astype(kind)
        data.flat[-1] = nan if data.size > 1 else data.flat[-1]
    else:
        data = given.astype(bool if kind == "int1" else kind)
    return tl.tensor(TensorHandle(data, element), tl.block_type(element, list(shape)) if shape else element)


def outcome(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Kind, shape, numpy's type and bits of the result; the text of an error."""
    try:
        result = function(*args, **kwargs)
    except Exception as error:
        return type(error), str(error)
    data = np.ascontiguousarray(result.handle.data)
    return str(result.type), tuple(result.shape), result.numel.value, data.shape, data.dtype, data.tobytes()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", BINARY)
def test_operators(name: str, language: Any) -> None:
    from triton_kernels._runtime import faster

    own = language(tl.tensor, name)
    quick, used = faster.version(tl.tensor, name, own), 0
    pairs = [(make(a, s), make(b, t)) for a, b in itertools.product(KINDS, KINDS) for s, t in SHAPE_PAIRS]
    pairs += [(make(kind, (4, 8)), number) for kind in KINDS for number in NUMBERS]
    for a, b in pairs:
        assert outcome(quick, a, b) == outcome(own, a, b), (name, a.type, getattr(b, "type", b))
        with contextlib.suppress(TypeError, ValueError):
            used += faster.OF_TENSOR[name](a, b) is not NotImplemented
    assert used >= 30


SHAPE_PAIRS = [(s, t) for s in SHAPES for t in SHAPES if {len(s), len(t)} != {1, 2}] + [((8,), (4, 8))]


@pytest.mark.filterwarnings("ignore")
def test_conversions_and_indices(language: Any) -> None:
    from triton_kernels._runtime import faster

    for kind, shape in itertools.product(KINDS, SHAPES):
        a = make(kind, shape, nan=1.5)  # no integer stands for NaN
        for name, arguments in (
            *[("to", (getattr(tl, wanted),)) for wanted in KINDS],
            *[("__getitem__", (place,)) for place in (None, (slice(None), None), (None, slice(None)), (None, None))],
            ("__getitem__", (0,)),
            ("__neg__", ()),
            ("__invert__", ()),
        ):
            own = language(tl.tensor, name)
            assert outcome(faster.version(tl.tensor, name, own), a, *arguments) == outcome(own, a, *arguments)


@pytest.mark.filterwarnings("ignore")
def test_choices(language: Any) -> None:
    from triton_kernels._runtime import faster

    for a, b, shape in itertools.product(KINDS, KINDS, ((4, 8), (4, 1), ())):
        x, y, condition = make(a, (4, 8)), make(b, shape), make("int1", (1, 8))
        for name, arguments in (
            *[("where", (condition, *each)) for each in ((x, y), (y, x), (x, 0.5), (-1, x), (1.0, 0.0))],
            *[(name, each) for name in ("maximum", "minimum") for each in ((x, y), (y, x), (x, 0.5), (-1, x))],
        ):
            own = language(tl, name)
            assert outcome(faster.version(tl, name, own), *arguments) == outcome(own, *arguments), (name, a, b)


@triton.jit
def copy(x_ptr, y_ptr, rows, columns, other, SIZE: tl.constexpr):
    r, c = tl.arange(0, SIZE)[:, None], tl.arange(0, SIZE)[None, :]
    x = tl.load(x_ptr + r * columns + c, mask=(r < rows) & (c < columns), other=other)
    tl.store(y_ptr + r * SIZE + c, x + tl.load(x_ptr), mask=r < SIZE)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int32, torch.int8])
@pytest.mark.parametrize("other", [0, 3])
@pytest.mark.parametrize("size", [8, 32], ids=["few", "many"])
def test_accesses(dtype: torch.dtype, other: int, size: int) -> None:
    x = torch.arange(3 * 5).reshape(3, 5).to(dtype)
    y = torch.zeros(size, size, dtype=dtype)
    copy[(1,)](x, y, 3, 5, other, SIZE=size)
    expected = torch.full((size, size), other, dtype=dtype)
    expected[:3, :5] = x
    assert torch.equal(y, expected)


@triton.jit
def out_of_shape(x_ptr, SIZE: tl.constexpr):
    tl.store(x_ptr + tl.arange(0, SIZE)[:, None], tl.zeros((SIZE, SIZE), tl.float32))


def test_an_access_of_another_shape_is_refused() -> None:
    with pytest.raises(Exception, match="Expected pointer argument to have shape"):
        out_of_shape[(1,)](torch.zeros(8), SIZE=8)


@triton.jit
def scatter(x_ptr, places_ptr, y_ptr, step, SIZE: tl.constexpr):
    i = tl.arange(0, SIZE)
    tl.store(y_ptr + tl.load(places_ptr + i), tl.load(x_ptr + i * step), mask=i != 3)


@pytest.mark.parametrize("size", [64, 256], ids=["few", "many"])
def test_the_last_value_for_a_place_stays(size: int) -> None:
    x, y = torch.arange(2 * size), torch.zeros(size, dtype=torch.int64)
    places = torch.arange(size) // 8
    scatter[(1,)](x, places, y, 2, SIZE=size)
    assert y.tolist() == [2 * (8 * i + 7) for i in range(size // 8)] + [0] * (size - size // 8)


def test_pointers_at_odd_distances_are_left_to_the_interpreter() -> None:
    from triton_kernels._runtime import accesses

    x = np.arange(1024, dtype=np.uint8)
    pointers = x.ctypes.data + np.arange(256, dtype=np.uint64)
    every = np.ones(256, bool)
    assert accesses._places(pointers, every, np.dtype(np.int32)) is None
    memory, offsets, chosen = accesses._places(pointers[:200] * 1, every[:200], np.dtype(np.uint8)) or (None,) * 3
    assert chosen is None
    assert np.array_equal(memory[offsets], x[:200])


@triton.jit
def copy_by_descriptor(x, y, SIZE: tl.constexpr):
    y.store([0, SIZE], x.load([0, SIZE]))


@pytest.mark.parametrize("size", [8, 16], ids=["few", "many"])
def test_accesses_by_descriptors(size: int) -> None:
    from triton.tools.tensor_descriptor import TensorDescriptor

    x, y = torch.arange(20.0 * 36).reshape(20, 36), torch.zeros(20, 36)
    block = [size, size]
    copy_by_descriptor[(1,)](TensorDescriptor.from_tensor(x, block), TensorDescriptor.from_tensor(y, block), SIZE=size)
    expected = torch.zeros(20, 36)
    expected[:size, size : 2 * size] = x[:size, size : 2 * size]
    assert torch.equal(y, expected)
