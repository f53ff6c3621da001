"""max_pool2d: the largest number of each window of images (N, H, W, C), channel by channel; it is exact."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar

import torch

from suite.core.errors import UsageError
from suite.numerics.formats import DTYPES
from suite.ops.conv2d import channels_first
from suite.problem import family, numbers, shape
from suite.problem.blocks import rows_per_block
from suite.problem.case import Case
from suite.problem.family import Family
from suite.problem.operation import Operation
from suite.problem.shape import Shape
from suite.problem.telling_case import TellingCase
from suite.problem.truth import Truth

ODD = (2, 9, 7, 24, 3, 3, 2, 1)
"""Shape of most families: windows overlap, and those at an edge have pixels beyond it."""
EVEN = (2, 8, 6, 17, 2, 2, 2, 0)


def negative(shape: Shape, case: Case, source: torch.Generator) -> torch.Tensor:
    """Negative numbers: a zero in the padding is larger than any pixel."""
    return -numbers.normals(shape, case, source).abs() - 1.0


def pooled(x: torch.Tensor, window: tuple[int, int], rows: slice, columns: int, stride: int) -> torch.Tensor:
    """Return rows of the maxima of padded images (images, height, width, C). NaN is larger than all numbers."""
    value = x.new_full((x.shape[0], rows.stop - rows.start, columns, x.shape[3]), -math.inf)
    for r in range(window[0]):
        down = slice(rows.start * stride + r, (rows.stop - 1) * stride + r + 1, stride)
        for s in range(window[1]):
            value = torch.maximum(value, x[:, down, s : s + (columns - 1) * stride + 1 : stride])
    return value


def output_sizes(case: Case) -> tuple[int, int]:
    """Return the rows and columns of the output."""
    _, h, w, _, r, s, stride, padding = case.shape
    return (h + 2 * padding - r) // stride + 1, (w + 2 * padding - s) // stride + 1


def pixels_read(case: Case) -> tuple[int, int]:
    """Return the numbers of rows and of columns of an image that lie in a window."""
    stride, padding = case["stride"], case["padding"]
    found = []
    for size, taps, windows in zip(case.shape[1:3], case.shape[4:6], output_sizes(case), strict=True):
        touched = windows * taps if taps <= stride else (windows - 1) * stride + taps
        beyond = (windows - 1) * stride + taps - padding - size  # of the last window
        found.append(touched - padding - max(0, min(beyond, taps)))
    return found[0], found[1]


class Pooling(Operation):
    """The declarations that a pooling and its gradient share."""

    dims = ("N", "H", "W", "C", "R", "S", "stride", "padding")
    sizes: ClassVar[Mapping[str, tuple[int, ...]]] = {
        "N": (1, 3),
        "H": (1, 7, 12, 33),
        "W": (1, 5, 16, 40),
        "C": (1, 24, 31, 64),
        "R": (1, 3, 2, 5),
        "S": (1, 3, 2, 4),
        "stride": (2, 1, 3),
        "padding": (0, 1, 2),
    }
    telling = (
        TellingCase("even_window", EVEN),
        TellingCase("R=131", (1, 140, 1, 2, 131, 1, 1, 0), first=False),
        TellingCase("S=131", (1, 1, 140, 2, 1, 131, 1, 0), first=False),
        TellingCase("P=1024", (1, 1024, 1, 2, 1, 1, 1, 0), first=False),
        TellingCase("Q=1024", (1, 1, 1024, 2, 1, 1, 1, 0), first=False),
        TellingCase("many_windows", (1, 89, 83, 9, 3, 3, 1, 1), first=False),
    )
    large = (
        TellingCase("large", (1, 6, 5, 4104, 3, 3, 1, 1)),
        TellingCase("many_pixels", (1, 190, 190, 9, 3, 3, 1, 1)),
        TellingCase("many_images", (70_001, 2, 2, 3, 1, 1, 1, 0)),
    )
    ragged = (
        (1, 1, 1, 1, 1, 1, 1, 0),
        (1, 13, 11, 17, 3, 3, 2, 1),
        (1, 12, 10, 33, 5, 2, 3, 1),
        (3, 9, 4, 130, 4, 4, 1, 2),
    )
    sweep = tuple((n, h, h, 64, 3, 3, 2, 1) for n, h in ((1, 14), (1, 28), (1, 112), (8, 112), (64, 112), (256, 112)))

    def parse_shapes(self, text: str) -> list[Shape]:
        """Parse shapes as other operations do; `stride` is 1 and `padding` 0 where the text leaves them out."""
        found = shape.parse(text, self.name, self.dims, is_square=False, defaults={"stride": 1, "padding": 0})
        for dims in found:
            self.validate(dims)
        return [tuple(dims.values()) for dims in found]

    def validate(self, dims: Mapping[str, int]) -> None:
        for name in ("H", "W", "R", "S", "stride"):
            if dims[name] < 1:
                raise UsageError(f"--shape: {name}={dims[name]} must be at least 1")
        if dims["padding"] > min(dims["R"], dims["S"]) // 2:
            raise UsageError(f"--shape: padding={dims['padding']} must be at most half of the window")
        for size, taps in (("H", "R"), ("W", "S")):
            room = dims[size] + 2 * dims["padding"]
            if dims[taps] > room:
                raise UsageError(f"--shape: {taps}={dims[taps]} must be at most {size} + 2 padding = {room}")

    def random_shape(self, size: Callable[[], int]) -> Shape:
        r, s = 1 + size() % 4, 1 + size() % 4
        padding = size() % (min(r, s) // 2 + 1)
        height, width = (max(1, taps - 2 * padding) + size() % 12 for taps in (r, s))
        return (size() % 3, height, width, size(), r, s, 1 + size() % 3, padding)

    def default_cases(self, device_type: str) -> list[Case]:
        """Cases on a GPU: the first pooling of ResNet-50, those of VGG-16, and overlapping windows of few pixels."""
        if device_type != "cuda":
            return [self.case((2, 8, 8, 24, 3, 3, 2, 1), dtype) for dtype in DTYPES]
        return [
            self.case((256, 112, 112, 64, 3, 3, 2, 1), "bfloat16"),
            self.case((64, 224, 224, 64, 2, 2, 2, 0), "bfloat16"),
            self.case((64, 224, 224, 64, 2, 2, 2, 0), "float32"),
            self.case((256, 28, 28, 512, 2, 2, 2, 0), "float16"),
            self.case((256, 28, 28, 256, 3, 3, 1, 1), "bfloat16"),
        ]

    def arguments(self, case: Case) -> dict[str, Any]:
        return {"window": (case["R"], case["S"]), "stride": case["stride"], "padding": case["padding"]}

    def images_at_once(self, case: Case) -> int:
        """Return the number of images that are judged at a time."""
        return rows_per_block(self.padded(case))

    def padded(self, case: Case) -> int:
        """Count the elements of an image with its padding."""
        return (case["H"] + 2 * case["padding"]) * (case["W"] + 2 * case["padding"]) * case["C"]


class MaxPool2d(Pooling):
    rank = 47
    group = "windows"
    name = "max_pool2d"
    formula = "y[n, p, q, c] = max over r < R, s < S of x[n, p stride + r - padding, q stride + s - padding, c]"
    families: ClassVar = {
        "normal": family.normal(),
        "sizes": family.sizes(*Pooling.ragged),
        "long_thin": family.long_thin((1, 2, 1031, 3, 2, 3, 2, 1)),
        "empty": family.empty((0, 5, 5, 8, 3, 3, 2, 1), (2, 5, 5, 0, 3, 3, 2, 1)),
        "channels_first": Family("images stored as (N, C, H, W)", family.NORMALS, channels_first, shapes=(ODD,)),
        "strided": family.strided_views(ODD),
        "offset": family.offset(ODD),
        "misaligned_rows": family.misaligned_rows(ODD),
        "broadcast": family.broadcast(ODD),
        "negative": Family(
            "negative numbers, which expose zeros in the padding",
            numbers.per_operand(negative),
            shapes=(ODD, (1, 6, 5, 9, 4, 4, 1, 2)),
        ),
        "subnormal": family.subnormal(ODD),
        "largest": family.large(ODD),
        "signed_zero": family.signed_zero(ODD),
        "infinity": family.infinity(ODD),
        "minus_infinity": Family(
            "minus infinity in half of the pixels, and in whole windows",
            numbers.per_operand(lambda *drawn: many_minus_infinite(*drawn)),
            shapes=(ODD,),
        ),
        "nan": family.nan(ODD, EVEN),
        "huge": family.huge((2**11 + 1, 128, 128, 64, 2, 2, 2, 0)),
    }

    def operands(self, case: Case) -> tuple[Shape, ...]:
        return (case.shape[:4],)

    def output_shape(self, case: Case) -> Shape:
        return (case["N"], *output_sizes(case), case["C"])

    def truth(self, inputs: tuple[torch.Tensor, ...], case: Case) -> Iterator[Truth]:
        """Yield some images at a time. A maximum is one of its numbers, so no other one is right."""
        n, p, q, c = self.output_shape(case)
        images, padding = self.images_at_once(case), case["padding"]
        for first in range(0, n, images):
            some = slice(first, min(first + images, n))
            border = (0, 0, padding, padding, padding, padding)
            x = torch.nn.functional.pad(inputs[0][some].double(), border, value=-math.inf)
            value = pooled(x, (case["R"], case["S"]), slice(0, p), q, case["stride"])
            del x
            yield Truth((some, slice(0, p), slice(0, q), slice(0, c)), value, torch.zeros_like(value))
            del value

    def bytes(self, case: Case) -> int:
        """Count the pixels that lie in a window, once each, and the output."""
        rows, columns = pixels_read(case)
        read = self.family(case.inputs).stored((case["N"], rows, columns, case["C"]), 0)
        return read * case.element_bytes + self.output_bytes(case)

    def flops(self, case: Case) -> int:
        """Count a comparison for each pixel of each window, as is usual: those in the padding too."""
        return math.prod(self.output_shape(case)) * case["R"] * case["S"]

    def workspace_bytes(self, case: Case) -> int:
        """Count three float64 arrays of the images that are judged at a time, and six of their output."""
        images = min(self.images_at_once(case), max(1, case["N"]))
        output = math.prod(self.output_shape(case)[1:])
        return 8 * images * (2 * self.padded(case) + 6 * output)


def many_minus_infinite(shape: Shape, case: Case, source: torch.Generator) -> torch.Tensor:
    """Normal numbers, half of them minus infinity, and all of the first row and column of pixels."""
    drawn = numbers.normals(shape, case, source)
    hidden = torch.rand(shape, generator=source, device=source.device) < 0.5
    hidden[:, :2, :2] = True
    return drawn.masked_fill_(hidden, -math.inf)


OP = MaxPool2d()
