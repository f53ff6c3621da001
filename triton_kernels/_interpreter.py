"""Differences between Triton's interpreter, which runs kernels on CPU tensors, and a compiled kernel."""

from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

INTERPRET = tl.constexpr(triton.knobs.runtime.interpret)  # TRITON_INTERPRET=1 when this module was imported


def _replace_once(patch: Callable[[Any], Any], nothing: Callable[[], Any]) -> Callable[[Any], Any]:
    """The interpreter's function that replaces those of triton.language, without its repetitions.

    The interpreter calls it for each launch, and again for each call of a function by a kernel, where they are replaced
    already. That is a third of the time of a small launch.

    Args:
        patch: takes a function, replaces what its module names, and returns what restores that after a launch.
        nothing: returns what restores nothing.
    """
    replaced: list[frozenset[int]] = []

    def patch_once(function: Any) -> Any:
        named = frozenset(id(value) for value in function.__globals__.values() if value is tl or value is tl.core)
        if replaced and named <= replaced[0]:
            return nothing()
        scope = patch(function)
        if not replaced:
            replaced.append(named)
            restore = scope.restore

            def restore_all() -> None:
                replaced.clear()
                restore()

            scope.restore = restore_all
        return scope

    return patch_once


if INTERPRET:
    from triton.runtime import interpreter

    if hasattr(interpreter, "_patch_lang") and hasattr(interpreter, "_LangPatchScope"):  # names of Triton 3.5 and 3.6
        interpreter._patch_lang = _replace_once(interpreter._patch_lang, interpreter._LangPatchScope)


@triton.jit
def dot_operand(x):
    """x as an operand of tl.dot: the interpreter's dot is wrong for bfloat16, so it gets float32."""
    if INTERPRET:
        return x.to(tl.float32)
    else:
        return x


def empty_output(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Uninitialised output of a kernel. The interpreter truncates stores of bfloat16, so it stores float32."""
    return torch.empty(shape, dtype=torch.float32 if INTERPRET else dtype, device=device)


def finished_output(out: Tensor, dtype: torch.dtype) -> Tensor:
    """The output in the result's dtype: torch rounds what the interpreter has stored as float32."""
    return out.to(dtype) if INTERPRET else out
