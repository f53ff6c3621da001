"""max_pool2d_grad: the gradient of max pooling: each dy goes to the pixel that is the largest of its window."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import ClassVar

import torch

from suite.ops.conv2d import channels_first
from suite.ops.max_pool2d import EVEN, ODD, Pooling, output_sizes, pixels_read
from suite.ops.sum import sum_limit
from suite.problem import family, numbers
from suite.problem.case import Case
from suite.problem.family import Family
from suite.problem.shape import Shape
from suite.problem.truth import Truth

FIRST = numbers.per_operand(numbers.small_integers, numbers.normals)
"""Small integers: most windows have several pixels of the largest number."""


def minus_infinite_inside(shape: Shape, case: Case, source: torch.Generator) -> torch.Tensor:
    """Normal numbers, half of them minus infinity, and all of a window, but none at an edge.

    XLA gives the gradient of a window of minus infinity to the padding, if it has some.
    """
    drawn = numbers.normals(shape, case, source)
    hidden = torch.rand(shape, generator=source, device=source.device) < 0.5
    first = case["stride"] - case["padding"]
    hidden[:, first : first + case["R"], first : first + case["S"]] = True
    hidden[:, [0, -1]] = hidden[:, :, [0, -1]] = False
    return drawn.masked_fill_(hidden, -math.inf)


def winners(x: torch.Tensor, case: Case) -> torch.Tensor:
    """Return the number of the tap that has the largest pixel of each window: the first one of several. float64 x."""
    (p, q), r, s, stride, padding = output_sizes(case), *case.shape[4:]
    border = (0, 0, padding, padding, padding, padding)
    inside, x = (
        torch.nn.functional.pad(torch.ones_like(x, dtype=torch.bool), border),
        torch.nn.functional.pad(x, border),
    )
    best = x.new_full((len(x), p, q, case["C"]), -math.inf)
    found = torch.full_like(best, -1, dtype=torch.long)
    for tap in range(r * s):
        at = windows(tap, s, (p, q), stride)
        larger = inside[at] & ((x[at] > best) | (found < 0))
        best, found = torch.where(larger, x[at], best), found.masked_fill(larger, tap)
    return found


def windows(tap: int, columns: int, sizes: tuple[int, int], stride: int) -> tuple[slice, ...]:
    """Return the index of the pixels under a tap, in padded images."""
    spans = zip(divmod(tap, columns), sizes, strict=True)
    return (slice(None), *(slice(first, first + (count - 1) * stride + 1, stride) for first, count in spans))


def scattered(winner: torch.Tensor, dy: torch.Tensor, case: Case) -> torch.Tensor:
    """Return the sums of the dy of the windows that each pixel wins, float64."""
    _, h, w, c, r, s, stride, padding = case.shape
    dx = dy.new_zeros(len(dy), h + 2 * padding, w + 2 * padding, c)
    for tap in range(r * s):
        dx[windows(tap, s, output_sizes(case), stride)] += torch.where(winner == tap, dy, 0.0)
    return dx[:, padding : padding + h, padding : padding + w]


class MaxPool2dGrad(Pooling):
    rank = 48
    group = "windows"
    name = "max_pool2d_grad"
    formula = "dx[n, h, w, c] = sum of dy[n, p, q, c] over the windows (p, q) whose first largest pixel is (h, w)"
    telling_left_out = ("nan@0",)
    families: ClassVar = {
        "normal": family.normal(),
        "sizes": family.sizes(*Pooling.ragged[:3]),
        "empty": family.empty((0, 5, 5, 8, 3, 3, 2, 1), (2, 5, 5, 0, 3, 3, 2, 1)),
        "channels_first": Family("images stored as (N, C, H, W)", family.NORMALS, channels_first, shapes=(ODD,)),
        "strided": family.strided_views(ODD),
        "broadcast": family.broadcast(ODD),
        "ties": Family("several largest pixels in most windows: the first one counts", FIRST, shapes=(ODD, EVEN)),
        "negative": Family(
            "negative pixels, which expose zeros in the padding",
            numbers.per_operand(lambda *drawn: -numbers.normals(*drawn).abs() - 1.0, numbers.normals),
            shapes=(ODD,),
        ),
        "minus_infinity": Family(
            "minus infinity in half of the pixels inside, and in a whole window",
            numbers.per_operand(minus_infinite_inside, numbers.normals),
            shapes=(ODD,),
        ),
        "range": family.spread(ODD, 20, -20),
        "infinity": family.infinity(ODD, values=numbers.per_operand(numbers.normals, numbers.some_infinite)),
        "nan": family.nan(ODD, EVEN, values=numbers.per_operand(numbers.normals, numbers.one_nan)),
    }

    def operands(self, case: Case) -> tuple[Shape, ...]:
        return (case.shape[:4], (case["N"], *output_sizes(case), case["C"]))

    def output_shape(self, case: Case) -> Shape:
        return case.shape[:4]

    def truth(self, inputs: tuple[torch.Tensor, ...], case: Case) -> Iterator[Truth]:
        """Yield some images at a time. A pixel is in at most `terms` windows."""
        n, h, w, c = self.output_shape(case)
        stride, images = case["stride"], self.images_at_once(case)
        terms = math.prod(math.ceil(taps / stride) for taps in (case["R"], case["S"]))
        for first in range(0, n, images):
            some = slice(first, min(first + images, n))
            winner, dy = winners(inputs[0][some].double(), case), inputs[1][some].double()
            value, squares = scattered(winner, dy, case), scattered(winner, dy.square(), case)
            del winner, dy
            bound = sum_limit(value, squares, terms, math.prod(case.shape[:4]), case.dtype)
            del squares
            yield Truth((some, slice(0, h), slice(0, w), slice(0, c)), value, bound)
            del value, bound

    def bytes(self, case: Case) -> int:
        """Count the pixels that lie in a window, once each, dy, and dx."""
        rows, columns = pixels_read(case)
        stored = self.family(case.inputs).stored
        read = stored((case["N"], rows, columns, case["C"]), 0) + stored(self.operands(case)[1], 1)
        return read * case.element_bytes + self.output_bytes(case)

    def flops(self, case: Case) -> int:
        """Count a comparison for each pixel of each window, and a sum for each window."""
        return math.prod(self.operands(case)[1]) * (case["R"] * case["S"] + 1)

    def workspace_bytes(self, case: Case) -> int:
        """Count eight float64 arrays of the images that are judged at a time, with padding, and five of dy."""
        images = min(self.images_at_once(case), max(1, case["N"]))
        return 8 * images * (8 * self.padded(case) + 5 * math.prod(self.operands(case)[1][1:]))


OP = MaxPool2dGrad()
