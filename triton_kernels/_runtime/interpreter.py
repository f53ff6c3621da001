"""Differences between Triton's interpreter, which runs kernels on CPU tensors, and a compiled kernel."""

import inspect
from collections.abc import Callable
from typing import Any, ClassVar

import torch
import triton
import triton.language as tl
from torch import Tensor

INTERPRET = tl.constexpr(triton.knobs.runtime.interpret)  # TRITON_INTERPRET=1 when this module was imported


class _Language:
    """Passed to the interpreter in place of a function: its globals are all modules that the interpreter patches."""

    __globals__: ClassVar[dict[str, Any]] = {"tl": tl, "core": tl.core}


def _replace_once(
    patch: Callable[[Any], Any],
    nothing: Callable[[], Any],
    version: Callable[[Any, str, Any], Any] = lambda owner, name, value: value,
) -> Callable[[Any], Any]:
    """A faster version of the interpreter's function that patches triton.language.

    The interpreter calls the function for each launch, and for each function that a kernel calls. Each call searches
    the modules for names to patch, which takes a third of a small launch. This version searches once per process.

    Args:
        patch: takes a function, patches the modules among its globals, and returns a scope that restores them.
        nothing: returns an empty scope; its `set_attr` replaces an attribute until the scope is restored.
        version: takes a module or class, the name of an attribute and its new value; returns the value to put there.
    """
    replacements: dict[tuple[int, str], tuple[Any, str, Any]] = {}
    replaced = False

    def patch_once(function: Any) -> Any:
        nonlocal replaced
        scope = nothing()
        if replaced:
            return scope
        if not replacements:
            found = patch(_Language)
            for owner, name, _ in found._changes:
                replacements[id(owner), name] = owner, name, version(owner, name, getattr(owner, name))
            found.restore()
        for change in replacements.values():
            scope.set_attr(*change)
        replaced, restore = True, scope.restore

        def restore_all() -> None:
            nonlocal replaced
            replaced = False
            restore()

        scope.restore = restore_all
        return scope

    return patch_once


def _once_a_type(numpy_type: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Caches the interpreter's function that finds the numpy dtype of a type, which builds a table in each call."""
    found: dict[str, Any] = {}

    def of(kind: Any) -> Any:
        name = kind.name
        return found[name] if name in found else found.setdefault(name, numpy_type(kind))

    return of


def _converts_quickly(convert: Callable[..., Any]) -> Callable[..., Any]:
    """The interpreter's conversion of numbers, with a table of those of 8 bits, and with a different widening of
    bfloat16: the original one is slow, and wrong for subnormal numbers."""
    tables: dict[tuple[str, str, Any], Any] = {}

    def converted(bits: Any, given: Any, wanted: Any, rounding_mode: Any) -> Any:
        if given == tl.bfloat16 and wanted == tl.float32:
            return bits.astype("uint32") << 16
        if given.primitive_bitwidth != 8:
            return convert(bits, given, wanted, rounding_mode)
        key = given.name, wanted.name, rounding_mode
        if key not in tables:
            tables[key] = convert(interpreter.np.arange(256, dtype="uint8"), given, wanted, rounding_mode)
        return tables[key][bits.view("uint8")]

    return converted


def _fold(self: Any, given: tuple[tl.tensor, ...]) -> list[tl.tensor]:
    """A faster version of the interpreter's `ReduceOps.generic_reduce`, which combines one pair of elements a call.

    This version combines whole blocks, one for each index of the axis. The order of the elements is the same.
    """
    whole, shape = self.axis is None, given[0].handle.data.shape
    axis = 0 if whole else self.axis % len(shape)
    arrays = [each.handle.data.flatten() if whole else each.handle.data for each in given]

    def typed(found: Any) -> list[tl.tensor]:
        return [self.to_tensor(array, each.dtype) for array, each in zip(found, given, strict=True)]

    total = typed(array.take(0, axis) for array in arrays)
    for i in range(1, arrays[0].shape[axis]):
        combined = self.combine_fn.fn(*total, *typed(array.take(i, axis) for array in arrays))
        parts = combined if isinstance(combined, tuple) else (combined,)
        total = typed(part.handle.data for part in parts)
    kept = [1 if whole or i == axis else n for i, n in enumerate(shape)]
    left = kept if self.keep_dims else [] if whole else [*shape[:axis], *shape[axis + 1 :]]
    return typed(part.handle.data.reshape(left) for part in total)


def _rewrite(self: Any) -> Any:
    """A faster version of the interpreter's `FunctionRewriter.rewrite_ast`, which reads the source of a function twice.

    Most of the time is for the end of the function, which Python finds by its tokens.
    """
    try:
        lines, first = inspect.getsourcelines(self.fn)
    except Exception:  # a function without source stays as it is
        return self.fn
    self.filename = self.fn.__code__.co_filename
    self.def_file_lineno = first + next((i for i, line in enumerate(lines) if line.strip().startswith("def ")), 0)
    self.def_lineno = self._find_def(lines)
    return self._compile_and_exec(self._transform_ast(self._prepare_source(lines)))


def _without_copies(copy_to_host: Callable[..., Any], copy_back: Callable[..., Any]) -> tuple[Any, Any]:
    """The interpreter's functions that copy the arguments of a launch to the CPU and back, for those that lie there.

    The interpreter makes new tensors over the same memory, and then copies this memory onto itself.
    """

    def on_host(value: Any) -> bool:
        if isinstance(value, Tensor):
            return value.device.type == "cpu"
        return not hasattr(value, "base") and (not isinstance(value, tuple) or all(map(on_host, value)))

    def to_host(self: Any, args: Any, kwargs: Any) -> Any:
        if all(map(on_host, (*args, *kwargs.values()))):
            return args, kwargs
        return copy_to_host(self, args, kwargs)

    def back(self: Any, args: Any, args_on_host: Any, kwargs: Any, kwargs_on_host: Any) -> None:
        if args is not args_on_host:
            copy_back(self, args, args_on_host, kwargs, kwargs_on_host)

    return to_host, back


if INTERPRET:
    from triton.runtime import interpreter

    # tl.maximum and tl.minimum without propagate_nan return the other operand for NaN, as on a GPU.
    interpreter.InterpreterBuilder.create_maxnumf = lambda self, a, b: self.binary_op(a, b, interpreter.np.fmax)
    interpreter.InterpreterBuilder.create_minnumf = lambda self, a, b: self.binary_op(a, b, interpreter.np.fmin)

    if hasattr(interpreter, "_patch_lang") and hasattr(interpreter, "_LangPatchScope"):  # names of Triton 3.5 and 3.6
        from triton_kernels._runtime import accesses, faster

        interpreter._patch_lang = _replace_once(interpreter._patch_lang, interpreter._LangPatchScope, faster.version)
        executor = interpreter.GridExecutor
        executor._init_args_hst, executor._restore_args_dev = _without_copies(
            executor._init_args_hst, executor._restore_args_dev
        )
        for name, version in (("load", accesses.load_at_once), ("store", accesses.store_at_once)):
            own = getattr(interpreter.InterpreterBuilder, f"create_masked_{name}")
            setattr(interpreter.InterpreterBuilder, f"create_masked_{name}", version(own))
        tl.tensor.__init__ = faster.make_tensor
        tl.block_type.__init__ = faster.known_blocks(tl.block_type.__init__)
        interpreter._get_np_dtype = _once_a_type(interpreter._get_np_dtype)
        interpreter._convert_float = _converts_quickly(interpreter._convert_float)
        interpreter.ReduceOps.generic_reduce = _fold
        interpreter.FunctionRewriter.rewrite_ast = _rewrite


@triton.jit
def dot_operand(x):
    """x as an operand of tl.dot: the interpreter's dot is wrong for bfloat16, so it gets float32."""
    if INTERPRET and x.dtype != tl.float64:
        return x.to(tl.float32)
    else:
        return x


@triton.jit
def to_working(x):
    """x in the type that kernels compute in: float64 as it is, all other types as float32."""
    if x.dtype == tl.float64:
        return x
    else:
        return x.to(tl.float32)


@triton.constexpr_function
def working_type(pointer_type):
    """The type that a kernel computes in for elements of a pointer: float64 for these, else float32."""
    return tl.float64 if pointer_type.element_ty == tl.float64 else tl.float32


def empty_output(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Uninitialised output of a kernel. The interpreter truncates stores of bfloat16, so it stores float32."""
    stored = torch.float32 if INTERPRET and dtype != torch.float64 else dtype
    return torch.empty(shape, dtype=stored, device=device)


def finished_output(out: Tensor, dtype: torch.dtype) -> Tensor:
    """The output in the result's dtype: torch rounds what the interpreter has stored as float32."""
    return out.to(dtype) if INTERPRET else out


def fitted(tile: dict[str, int], M: int, N: int, K: int) -> dict[str, int]:
    """The tile of an interpreted product, whose blocks are no larger than the matrices need; empty if `tile` is.

    numpy multiplies whole blocks, and a tall product has many of them.
    """
    needed = {"BLOCK_M": M, "BLOCK_N": N, "BLOCK_K": K}
    return {name: min(size, max(16, triton.next_power_of_2(needed[name]))) for name, size in tile.items()}
