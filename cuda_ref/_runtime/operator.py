"""Makes functions of this folder torch operators, so that torch.compile does not trace into them or break its graph.

This file is the same in cuda_ref/ and triton_kernels/. Edit cuda_ref/_runtime/operator.py and copy it to the other;
a test compares them.
"""

from __future__ import annotations

from collections.abc import Callable
from inspect import Parameter, signature
from typing import Any, get_args, get_origin

import torch
from torch import Tensor

from .contract import check_codes

TYPES: dict[Any, str] = {str: "str", bool: "bool", int: "int", float: "float"}
TYPES |= {int | None: "int?", float | None: "float?", tuple[int, int]: "int[2]"}
"""Python types of options, and the names of these types in torch's schemas."""


def operator(function: Callable[..., Any]) -> Callable[..., Any] | None:
    """Returns the operator `torch.ops.<folder>.<operation>_<variant>`; None for a function of another folder.

    Below another package, the name of the folder begins with that of the package: `<package>_<folder>`.
    """
    folder = __package__.rpartition(".")[0]
    file = function.__module__.removeprefix(f"{folder}.")
    if file == function.__module__:
        return None
    library, name = (each.replace(".", "_") for each in (folder, file))
    custom = torch.library.custom_op(f"{library}::{name}", function, mutates_args=(), schema=schema(function))
    custom.register_fake(_results(function))
    found: Callable[..., Any] = getattr(getattr(torch.ops, library), name)
    return found


def schema(function: Callable[..., Any]) -> str:
    """The schema of a function, such as `(Tensor x, Tensor weight, *, float eps) -> Tensor`."""
    parameters, named = [], False
    for each in signature(function).parameters.values():
        if each.kind is Parameter.KEYWORD_ONLY and not named:
            parameters.append("*")
            named = True
        kind = TYPES[each.annotation] if named else "Tensor" if each.default is Parameter.empty else "Tensor?"
        default = "" if each.default is Parameter.empty else f"={_literal(each.default)}"
        parameters.append(f"{kind} {each.name}{default}")
    several = get_origin(signature(function).return_annotation) is tuple
    results = f"({', '.join(['Tensor'] * _count(function))})" if several else "Tensor"
    return f"({', '.join(parameters)}) -> {results}"


def _literal(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else str(value)


def _count(function: Callable[..., Any]) -> int:
    return len(get_args(signature(function).return_annotation))


def _results(function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a function that allocates the results: as RESULTS says, or shaped like the first tensors."""
    if (found := RESULTS.get(function.__name__)) is not None:
        return found
    if get_origin(signature(function).return_annotation) is tuple:
        return lambda *tensors, **_: tuple(each.new_empty(each.shape) for each in tensors[: _count(function)])
    return lambda x, *_, **__: x.new_empty(x.shape, dtype=_result_dtype(x))


def _pooled(x: Tensor, *, window: tuple[int, int], stride: int = 1, padding: int = 0) -> Tensor:
    N, H, W, C = x.shape
    P, Q = ((size + 2 * padding - taps) // stride + 1 for size, taps in zip((H, W), window, strict=True))
    return x.new_empty(N, P, Q, C)


def _convolved(x: Tensor, weight: Tensor, *, stride: int = 1, padding: int = 0, **_: Any) -> Tensor:
    N, P, Q, _C = _pooled(x, window=(weight.shape[1], weight.shape[2]), stride=stride, padding=padding).shape
    return x.new_empty(N, P, Q, weight.shape[0])


def _losses_of(x: Tensor) -> Tensor:
    return x.new_empty(x.shape[0], dtype=torch.float32)


def _codes_of(x: Tensor, *_: Tensor, group: str = "row", to: str = "float8_e4m3fn", **__: Any) -> tuple[Tensor, Tensor]:
    M, N = x.shape
    rows, columns = check_codes("quantize", N, group=group, to=to)
    codes = x.new_empty(M, N, dtype=getattr(torch, to))
    return codes, x.new_empty(-(-M // rows), -(-N // columns), dtype=torch.float32)


def _result_dtype(x: Tensor) -> torch.dtype:
    return torch.bfloat16 if x.dtype == torch.float8_e4m3fn else x.dtype


RESULTS: dict[str, Callable[..., Any]] = {
    "matmul": lambda a, b, *_, **__: a.new_empty(a.shape[0], b.shape[1], dtype=_result_dtype(a)),
    "block_scaled_matmul": lambda a, _, b, __: a.new_empty(a.shape[0], b.shape[0], dtype=torch.bfloat16),
    "int4_matmul": lambda x, weight, *_, **__: x.new_empty(x.shape[0], weight.shape[0]),
    "grouped_matmul": lambda x, weight, _: x.new_empty(x.shape[0], weight.shape[2]),
    "grouped_block_scaled_matmul": lambda x, _, weight, *__: x.new_empty(
        x.shape[0], weight.shape[1], dtype=torch.bfloat16
    ),
    "grouped_matmul_grad": lambda x, dy, sizes: x.new_empty(sizes.shape[0], x.shape[1], dy.shape[1]),
    "linear_sigmoid": lambda x, weight, *_, **__: x.new_empty(x.shape[0], weight.shape[0]),
    "conv2d": _convolved,
    "max_pool2d": _pooled,
    "lstm": lambda x, _, __, ___, h0, c0, w_ih_upper=None: (
        x.new_empty(*x.shape[:2], h0.shape[-1]), h0.new_empty(h0.shape), c0.new_empty(c0.shape),
    ),
    "sum": lambda x, *, axis=None: x.new_empty(() if axis is None else (x.shape[1 - axis],)),
    "top_k": lambda x, *, k: (x.new_empty(x.shape[0], k), x.new_empty(x.shape[0], k, dtype=torch.int64)),
    "quantize": _codes_of,
    "silu_mul_quantize": _codes_of,
    "rms_norm_quantize": _codes_of,
    "adam_step": lambda param, grad, m, v, **_: tuple(each.new_empty(each.shape) for each in (param, m, v)),
    "cross_entropy": lambda logits, *_, **__: (_losses_of(logits), logits.new_empty(logits.shape)),
    "linear_cross_entropy": lambda x, weight, *_, **__: (
        _losses_of(x), x.new_empty(x.shape), weight.new_empty(weight.shape),
    ),
    "layer_norm_grad": lambda x, weight, dy, *, eps: tuple(each.new_empty(each.shape) for each in (x, weight, weight)),
}  # fmt: skip
"""Functions that allocate the results of operations whose results are not like their first tensors."""
