"""Several results of one call, joined to one vector for copying, comparing and judging.

Each result is flattened in row-major order. All have the operation's output dtype.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate
from typing import TYPE_CHECKING

from suite.problem.shape import Shape

if TYPE_CHECKING:
    import torch


def flat_shape(shapes: Sequence[Shape]) -> Shape:
    """Return the shape of the joined vector."""
    return (sum(map(math.prod, shapes)),)


def starts(shapes: Sequence[Shape]) -> tuple[int, ...]:
    """Return the index in the vector at which each result begins."""
    return tuple(accumulate((math.prod(shape) for shape in shapes[:-1]), initial=0))


def joined(outputs: Sequence[torch.Tensor]) -> torch.Tensor:
    """Join results to a vector in new memory; a single result is returned as it is."""
    import torch

    return outputs[0] if len(outputs) == 1 else torch.cat([output.reshape(-1) for output in outputs])


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
