"""The results of one call, brought into one array for copying, comparing and judging.

A single result is that array. Several are joined to a vector, each flattened in row-major order. Booleans count as
uint8, and a complex number as its real and imaginary part. Results of several types are joined as float64, or as int64
if all of them are integers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from suite.numerics.formats import is_integer
from suite.problem.shape import Shape

if TYPE_CHECKING:
    import torch


def flat_shape(shapes: Sequence[Shape]) -> Shape:
    """Return the shape of the joined vector."""
    return (sum(map(math.prod, shapes)),)


def starts(shapes: Sequence[Shape]) -> tuple[int, ...]:
    """Return the index in the vector at which each result begins."""
    return tuple(accumulate((math.prod(shape) for shape in shapes[:-1]), initial=0))


def leaves(result: Any) -> list[Any]:
    """Return the arrays in a result: the items of tuples and lists, and the values of mappings in the order of their
    keys. None counts as no result."""
    if result is None:
        return []
    if isinstance(result, tuple | list):
        return [leaf for each in result for leaf in leaves(each)]
    if isinstance(result, Mapping):
        return [leaf for key in sorted(result, key=str) for leaf in leaves(result[key])]
    return [result]


def judged_dtype(dtype: str) -> str:
    """Return the type for judging the numbers of a result's type."""
    return {"bool": "uint8", "complex64": "float32", "complex128": "float64"}.get(dtype, dtype)


def judged_shape(shape: Shape, dtype: str) -> Shape:
    """Return the shape of a result as it is judged: complex numbers have a last axis of two."""
    return (*shape, 2) if dtype.startswith("complex") else shape


def joined_dtype(dtypes: Sequence[str]) -> str:
    """Return the type of the array that joins results of these types."""
    kinds = {judged_dtype(dtype) for dtype in dtypes}
    if len(kinds) == 1:
        return kinds.pop()
    return "int64" if all(map(is_integer, kinds)) else "float64"


def joined_shape(shapes: Sequence[Shape], dtypes: Sequence[str]) -> Shape:
    """Return the shape of the array that joins results of these shapes and types."""
    found = [judged_shape(shape, dtype) for shape, dtype in zip(shapes, dtypes, strict=True)]
    return found[0] if len(found) == 1 else flat_shape(found)


def joined(outputs: Sequence[torch.Tensor]) -> torch.Tensor:
    """Join results in new memory; a single one is returned as it is, or as a view of it, unless it is not row-major."""
    import torch

    plain = [as_judged(output) for output in outputs]
    if len(plain) == 1:
        return plain[0].contiguous()
    kind = getattr(torch, joined_dtype([str(each.dtype).removeprefix("torch.") for each in plain]))
    return torch.cat([each.reshape(-1).to(kind) for each in plain])


def join_into(to: torch.Tensor, outputs: Sequence[torch.Tensor]) -> None:
    """Copy results to `to`, which has the form of `joined(outputs)`. Equal types and orders take copies alone."""
    plain = [as_judged(output) for output in outputs]
    if len(plain) == 1:
        to.copy_(plain[0])
        return
    begin = 0
    for each in plain:
        to[begin : begin + each.numel()].view(each.shape).copy_(each)
        begin += each.numel()


def as_judged(output: torch.Tensor) -> torch.Tensor:
    """Return a result as it is judged, over the same memory."""
    import torch

    if output.is_complex():
        return torch.view_as_real(output.resolve_conj())
    return output.view(torch.uint8) if output.dtype is torch.bool else output


def located(at: tuple[int, ...], names: Sequence[str] = (), shapes: Sequence[Shape] = ()) -> str:
    """Write an index as `[1, 2]`; an index of the vector of several results as `dk[1, 2]`."""
    name = ""
    if names:
        which = max(i for i, start in enumerate(starts(shapes)) if start <= at[0] and 0 not in shapes[i])
        rest = at[0] - starts(shapes)[which]
        steps = [math.prod(shapes[which][axis + 1 :]) for axis in range(len(shapes[which]))]
        at = tuple(rest // step % size for step, size in zip(steps, shapes[which], strict=True))
        name = names[which]
    return f"{name}[{', '.join(map(str, at))}]"
