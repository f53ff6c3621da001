"""Calls the launcher of a .cu for a user's operation (`--reference my_op.py --with my_op.cu`).

    extern "C" int my_op(const void* x, double factor, void* out, int64_t M, int64_t N, int64_t dtype,
                         cudaStream_t stream, LaunchRecord* record);

The launcher takes the arguments of the reference in their order: tensors as pointers, numbers as int64_t or double.
Then come the result, the sizes of the case in the order of the operation's dimensions, and the code of its dtype.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from suite.problem.case import Case
from suite.problem.operation import Operation


def launcher(path: Path, op: Operation, case: Case) -> Callable[..., Any]:
    """The function that calls the launcher in `path` with the arguments of the reference, on contiguous tensors.

    It raises `TypeError` if the launcher has other parameters, and `NotImplementedError` for a dtype without a code.
    """
    import torch

    from cuda_ref import build

    dtype = getattr(torch, case.dtype)
    if dtype not in build.DTYPES:
        raise NotImplementedError(f"common.cuh has no code for {case.dtype}, only for float32 and 16-bit floats")
    result_dtype = getattr(torch, op.output_dtype(case))

    def call(*arguments: Any) -> Any:
        given = [each.contiguous() if isinstance(each, torch.Tensor) else each for each in arguments]
        device = next(each.device for each in given if isinstance(each, torch.Tensor))
        results = tuple(torch.empty(shape, dtype=result_dtype, device=device) for shape in op.output_shapes(case))
        passed = [*given, *results, *case.shape, build.dtype_code(dtype)]
        _require(path, op, passed)
        build.launch(path, op.entry, device, *passed)
        return results if len(results) > 1 else results[0]

    return call


def _require(path: Path, op: Operation, passed: list[Any]) -> None:
    """Raise `TypeError` unless the launcher's parameters match the arguments."""
    from cuda_ref.build import rewrite

    given = rewrite.parameters(path.read_text(encoding="utf-8"), op.entry)
    wanted = list(map(_kind, passed))
    if ["double" if kind == "float" else kind for kind in given] != wanted:
        raise TypeError(
            f"{op.entry} takes ({', '.join(given)}), but must take ({', '.join(wanted)}) before stream and record: the "
            f"arguments of the reference, the result, {', '.join((*op.dims, 'dtype'))}"
        )


def _kind(value: Any) -> str:
    return "int64_t" if isinstance(value, int) else "double" if isinstance(value, float) else "pointer"
