"""Faster versions of what Triton's interpreter calls for the lines of a kernel: arithmetic, comparisons, accesses.

The interpreter makes types, shapes and broadcast copies of the operands of each operation, and computes integers a
second time in 64 bits, for a message about overflows that it then leaves out. These versions look types up in tables,
and numpy broadcasts. They are for usual types and arguments; all else, and all that is an error, is left to the
interpreter's own version (`NotImplemented`). Results have the same bits.
"""

import math
import operator
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from typing import Any

import triton.language as tl
from triton.language.core import block_type, constexpr, pointer_type, tensor
from triton.language.core import tuple as triton_tuple
from triton.runtime.interpreter import TensorHandle, interpreter_builder, interpreter_semantic, np

Version = Callable[..., Any]
INTEGERS = {
    each.name: np.dtype(each.name)
    for each in (tl.int8, tl.int16, tl.int32, tl.int64, tl.uint8, tl.uint16, tl.uint32, tl.uint64)
}
FLOATS = {"fp16": np.dtype("float16"), "fp32": np.dtype("float32"), "fp64": np.dtype("float64")}
NUMPY = {**INTEGERS, **FLOATS, "int1": np.dtype(bool)}
"""numpy's types of the kinds of numbers, by name. Other kinds are left to the interpreter."""
KINDS = {each.name: each for each in (*(getattr(tl, name) for name in INTEGERS), tl.float16, tl.float32, tl.float64)}
KINDS["int1"] = tl.int1
LIMITS = {name: (int(np.iinfo(kind).min), int(np.iinfo(kind).max)) for name, kind in INTEGERS.items()}
WHOLE = slice(None)
_blocks: dict[tuple[Any, ...], Any] = {}
"""The types of blocks, by the kind of their elements and their shape."""


# ------------------------------------------------------------------ tensors and their types


def _parts(kind: Any) -> tuple[Any, Any, Any]:
    """Shape, number of elements and kind of the elements of tensors of a type, which the type keeps."""
    found: tuple[Any, Any, Any] | None = kind.__dict__.get("parts_of_tensors")
    if found is None:
        shape = tuple(kind.shape) if kind.is_block() else ()
        found = triton_tuple([constexpr(size) for size in shape]), constexpr(math.prod(shape)), kind.scalar
        kind.parts_of_tensors = found
    return found


def make_tensor(self: Any, handle: Any, type: Any) -> None:
    """`tensor.__init__`, with the shape that the type keeps."""
    self.handle, self.type = handle, type
    self.shape, self.numel, self.dtype = _parts(type)


def known_blocks(make: Version) -> Version:
    """`block_type.__init__`, which checks each shape once."""
    known: dict[tuple[Any, ...], dict[str, Any]] = {}

    def init(self: Any, element_ty: Any, shape: Any) -> None:
        key = getattr(element_ty, "name", None), *[each.value if type(each) is constexpr else each for each in shape]
        if type(element_ty) is pointer_type or key not in known:
            make(self, element_ty, shape)
            known.setdefault(key, self.__dict__)
        else:
            self.__dict__.update(known[key])

    return init


def _type_of(kind: Any, shape: tuple[int, ...]) -> Any:
    key = kind.name, getattr(kind, "address_space", 0), shape
    if key not in _blocks:
        _blocks[key] = block_type(kind, list(shape))
    return _blocks[key]


def _tensor(data: Any, kind: Any, is_block: bool) -> Any:
    handle: Any = object.__new__(TensorHandle)
    handle.data, handle.dtype, handle.attr = data, kind, {}
    result: Any = object.__new__(tensor)
    make_tensor(result, handle, _type_of(kind, data.shape) if is_block else kind)
    return result


def _is_block(x: Any) -> bool:
    return type(x.type) is block_type


@lru_cache(4096, typed=True)
def _constant(value: float, kind: str, wanted: str) -> Any:
    """An array of one number, first of a kind and then of the wanted one. Zero has no sign, as in the interpreter."""
    return np.array([value or 0], NUMPY[kind]).astype(NUMPY[wanted])


# ------------------------------------------------------------------ operands


@lru_cache(1024)
def _common(a: str, b: str, is_number: bool, division: bool) -> str | None:
    """The kind in which an operation computes; None if it is not one of NUMPY. is_number: b is a number of Python."""
    if a not in NUMPY or b not in NUMPY:
        return None
    try:
        found = interpreter_semantic.computation_type_impl(KINDS[a], False, KINDS[b], is_number, division)
    except TypeError:
        return None
    return str(found.name) if found.name in NUMPY else None


@lru_cache(1024, typed=True)
def _kind_of(number: float) -> str | None:
    try:
        return str(interpreter_semantic.to_tensor(number).dtype.name)
    except ValueError:
        return None


def _operands(a: Any, b: Any, division: bool = False, converts: bool = False) -> tuple[Any, Any, str, bool] | None:
    """The arrays of a tensor and of a tensor or number, in their common kind; its name; and if one is a block.

    converts: a number becomes a tensor of its own kind first, as in a comparison. None: left to the interpreter.
    """
    if type(b) is constexpr:
        b = b.value
    x, name = a.handle.data, a.dtype.name
    if type(b) is tensor:
        y, kind = b.handle.data, b.dtype.name
        common = name if name == kind and name in NUMPY and not division else _common(name, kind, False, division)
        if common is None:
            return None
        if kind != common:
            y = y.astype(NUMPY[common])
        is_block = type(a.type) is block_type or type(b.type) is block_type
    elif type(b) is int or type(b) is float:
        kind = _kind_of(b)
        common = None if kind is None else _common(name, kind, not converts, division)
        if common is None or (common in LIMITS and not LIMITS[common][0] <= b <= LIMITS[common][1]):
            return None
        y, is_block = _constant(b, kind if converts else common, common), type(a.type) is block_type
    else:
        return None
    if name != common:
        x = x.astype(NUMPY[common])
    return x, y, common, is_block


# ------------------------------------------------------------------ arithmetic


def _arithmetic(function: Any, reflected: bool, a: Any, b: Any) -> Any:
    """a + b, a - b and a * b; reflected: b + a, and so on."""
    if type(a.dtype) is pointer_type:
        return _offset(a, b) if function is np.add else NotImplemented
    if type(b) is tensor and type(b.dtype) is pointer_type:
        return _offset(b, a) if function is np.add else NotImplemented
    if (found := _operands(a, b)) is None:
        return NotImplemented
    x, y, name, is_block = found
    x, y = (y, x) if reflected else (x, y)
    if name == "int1" or (name in INTEGERS and interpreter_builder.options.debug):  # looks for overflows
        return NotImplemented
    return _tensor(function(x, y), KINDS[name], is_block)


def _offset(pointer: Any, by: Any) -> Any:
    """The pointers that lie `by` elements further, as the interpreter's `create_addptr`."""
    if type(by) is int and -(2**63) <= by < 2**63:
        steps, is_block = np.array([by], np.int64), _is_block(pointer)
    elif type(by) is tensor and by.dtype.name in INTEGERS:
        steps, is_block = by.handle.data, _is_block(pointer) or _is_block(by)
    else:
        return NotImplemented
    size = max(1, pointer.handle.get_element_ty().primitive_bitwidth // 8)
    return _tensor(pointer.handle.data + size * steps.astype(np.uint64), pointer.dtype, is_block)


def _division(kind: str, reflected: bool, a: Any, b: Any) -> Any:
    """a / b of floating-point numbers, a // b and a % b of integers; reflected: b / a, and so on."""
    found = _operands(a, b, division=True)
    if found is None or found[2] not in (FLOATS if kind == "/" else INTEGERS):
        return NotImplemented
    x, y, name, is_block = found
    x, y = (y, x) if reflected else (x, y)
    if kind == "/":
        data = np.divide(x, y)
    else:
        data = np.fmod(x, y)
        data = data if kind == "%" else (x - data) // y
    return _tensor(data, KINDS[name], is_block)


def _bitwise(function: Any, reflected: bool, a: Any, b: Any) -> Any:
    found = _operands(a, b)
    if found is None or found[2] in FLOATS:
        return NotImplemented
    x, y, name, is_block = found
    return _tensor(function(y, x) if reflected else function(x, y), KINDS[name], is_block)


def _comparison(function: Any, a: Any, b: Any) -> Any:
    if (found := _operands(a, b, converts=True)) is None:
        return NotImplemented
    x, y, _, is_block = found
    return _tensor(function(x, y), tl.int1, is_block)


def _negative(a: Any) -> Any:
    if a.dtype.name not in FLOATS:
        return NotImplemented
    return _tensor(np.subtract(_constant(0, a.dtype.name, a.dtype.name), a.handle.data), a.dtype, _is_block(a))


def _inverse(a: Any) -> Any:
    if a.dtype.name not in ("int1", "int32", "int64"):
        return NotImplemented
    return _tensor(np.invert(a.handle.data), a.dtype, _is_block(a))


def _where(condition: Any, x: Any, y: Any) -> Any:
    if type(condition) is not tensor or condition.dtype.name != "int1":
        return NotImplemented
    first, second = (x, y) if type(x) is tensor else (y, x)
    if type(first) is not tensor or (found := _operands(first, second)) is None:
        return NotImplemented
    a, b, name, is_block = found
    a, b = (a, b) if first is x else (b, a)
    return _tensor(np.where(condition.handle.data, a, b), KINDS[name], is_block or _is_block(condition))


def _extreme(names: Mapping[Any, str], x: Any, y: Any, propagate_nan: Any = tl.PropagateNan.NONE) -> Any:
    """The larger or smaller of two. names: the interpreter's function for floating-point numbers, by propagate_nan."""
    first, second = (x, y) if type(x) is tensor else (y, x)
    if type(first) is not tensor or (found := _operands(first, second, converts=True)) is None:
        return NotImplemented
    a, b, name, is_block = found
    if name == "int1" or propagate_nan not in names:
        return NotImplemented
    a, b = (a, b) if first is x else (b, a)
    if name in INTEGERS:
        return _tensor((np.maximum if names is LARGER else np.minimum)(a, b), KINDS[name], is_block)
    found = getattr(interpreter_builder, names[propagate_nan])(_handle(a, KINDS[name]), _handle(b, KINDS[name]))
    return _tensor(found.data, KINDS[name], is_block)


LARGER = {tl.PropagateNan.NONE: "create_maxnumf", tl.PropagateNan.ALL: "create_maximumf"}
SMALLER = {tl.PropagateNan.NONE: "create_minnumf", tl.PropagateNan.ALL: "create_minimumf"}


# ------------------------------------------------------------------ shapes, kinds and memory


def _element(a: Any, places: Any) -> Any:
    """a[:, None] and the like, of a block."""
    places = places if type(places) is tuple else (places,)
    if not _is_block(a) or any(each is not None and each != WHOLE for each in places):
        return NotImplemented
    if sum(each is not None for each in places) > a.handle.data.ndim:
        return NotImplemented
    return _tensor(a.handle.data[places], a.dtype, True)


def _to(a: Any, kind: Any) -> Any:
    kind = kind.value if type(kind) is constexpr else kind
    name, wanted = a.dtype.name, getattr(kind, "name", "")
    if wanted not in NUMPY or wanted == "int1":
        return NotImplemented
    if name == wanted:
        return a
    if name in NUMPY:
        return _tensor(a.handle.data.astype(NUMPY[wanted]), KINDS[wanted], _is_block(a))
    if name == "bf16" and wanted == "fp32":
        widened = a.handle.data.astype(np.uint32) << 16
        return _tensor(widened.view(np.float32), KINDS[wanted], _is_block(a))
    return NotImplemented


def _access(pointer: Any, mask: Any, value: Any) -> tuple[Any, Any, Any] | None:
    """The handles of an access, with one shape: pointers, mask or None, and value or None.

    None: not an access through tensors of pointers, or of another kind than the value.
    """
    if type(pointer) is not tensor or type(pointer.dtype) is not pointer_type:
        return None
    kind = pointer.dtype.element_ty
    if kind.name == "int1" or kind.is_block() or kind.is_ptr():
        return None
    others = []
    for each, wanted in ((mask, "int1"), (value, kind.name)):
        if each is None:
            others.append(None)
        elif type(each) is tensor and each.dtype.name == wanted and (_is_block(pointer) or not _is_block(each)):
            others.append(each.handle)
        else:
            return None
    arrays = [each.data for each in (pointer.handle, *others) if each is not None]
    if any(each.shape != arrays[0].shape for each in arrays):
        shape = np.broadcast_shapes(*(each.shape for each in arrays))
        others = [None if each is None else _handle(np.broadcast_to(each.data, shape), each.dtype) for each in others]
        return _handle(np.broadcast_to(pointer.handle.data, shape), pointer.dtype), others[0], others[1]
    return pointer.handle, others[0], others[1]


def _handle(data: Any, kind: Any) -> Any:
    return _tensor(data, kind, False).handle


def _number_at(pointer: Any, number: float) -> Any:
    """A tensor of the kind to which `pointer` points; None for zero, which a load puts where it is masked anyway."""
    if number == 0:
        return None
    kind, wanted = _kind_of(number), getattr(getattr(pointer.dtype, "element_ty", None), "name", "")
    if kind is None or wanted not in NUMPY:
        return NotImplemented
    return _tensor(_constant(number, kind, wanted), KINDS[wanted], False)


def _load(pointer: Any, mask: Any = None, other: Any = None, **hints: Any) -> Any:
    if not hints.keys() <= HINTS or (other is not None and mask is None):
        return NotImplemented
    if type(other) in (int, float):
        other = _number_at(pointer, other)
    if (found := _access(pointer, mask, other)) is None:
        return NotImplemented
    handle, mask, other = found
    if mask is None:
        loaded = interpreter_builder.create_load(handle, None, None, False)
    else:
        loaded = interpreter_builder.create_masked_load(handle, mask, other, None, None, False)
    return _tensor(loaded.data, pointer.dtype.element_ty, _is_block(pointer))


def _store(pointer: Any, value: Any, mask: Any = None, **hints: Any) -> Any:
    if type(value) is not tensor or type(pointer) is not tensor or type(pointer.dtype) is not pointer_type:
        return NotImplemented
    if value.dtype.name != pointer.dtype.element_ty.name:
        value = _to(value, pointer.dtype.element_ty)
    if not hints.keys() <= HINTS or (found := _access(pointer, mask, value)) is None:
        return NotImplemented
    handle, mask, stored = found
    if handle.data.shape != pointer.handle.data.shape:
        return NotImplemented
    if mask is None:
        return interpreter_builder.create_store(handle, stored, None, None)
    return interpreter_builder.create_masked_store(handle, stored, mask, None, None)


HINTS = {"cache_modifier", "eviction_policy", "_semantic"}
"""Arguments of an access that change nothing in the interpreter."""

OF_TENSOR: dict[str, Version] = {
    **{f"__{name}__": partial(_arithmetic, getattr(np, long), False) for name, long in
       (("add", "add"), ("sub", "subtract"), ("mul", "multiply"))},
    **{f"__r{name}__": partial(_arithmetic, getattr(np, long), True) for name, long in
       (("add", "add"), ("sub", "subtract"), ("mul", "multiply"))},
    **{f"__{name}__": partial(_division, sign, False) for name, sign in
       (("truediv", "/"), ("floordiv", "//"), ("mod", "%"))},
    **{f"__r{name}__": partial(_division, sign, True) for name, sign in
       (("truediv", "/"), ("floordiv", "//"), ("mod", "%"))},
    **{f"__{name}__": partial(_bitwise, getattr(np, f"bitwise_{name}"), False) for name in ("and", "or", "xor")},
    **{f"__r{name}__": partial(_bitwise, getattr(np, f"bitwise_{name}"), True) for name in ("and", "or", "xor")},
    **{f"__{name}__": partial(_comparison, getattr(operator, name)) for name in ("lt", "le", "gt", "ge", "eq", "ne")},
    "__neg__": _negative,
    "__invert__": _inverse,
    "__getitem__": _element,
    "__index__": lambda number: int(number.handle.data.item()),  # that of Triton 3.6 fails with NumPy 2.4
    "to": _to,
}  # fmt: skip
OF_LANGUAGE: dict[str, Version] = {
    "load": _load,
    "store": _store,
    "where": _where,
    "maximum": partial(_extreme, LARGER),
    "minimum": partial(_extreme, SMALLER),
}


def version(owner: Any, name: str, own: Version) -> Version:
    """The faster version of a function that the interpreter puts into triton.language; `own` if there is none."""
    faster = OF_TENSOR.get(name) if owner is tensor else OF_LANGUAGE.get(name) if owner in (tl, tl.core) else None
    if faster is None:
        return own

    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            result = faster(*args, **kwargs)
        except (TypeError, ValueError):  # arguments of another form, and shapes that do not fit
            result = NotImplemented
        return own(*args, **kwargs) if result is NotImplemented else result

    return call
