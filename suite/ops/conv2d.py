"""conv2d: images (N, H, W, C) convolved with weights (K, R, S, C) as in deep learning: taps are not flipped."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar

import torch

from suite.core.errors import UsageError
from suite.numerics.formats import DOUBLE, DTYPES
from suite.numerics.repeats import repeats
from suite.ops.matmul import matmul_limit, product_noise
from suite.problem import family, numbers, shape, specials
from suite.problem.blocks import BLOCK_ELEMENTS, rows_per_block
from suite.problem.case import Case
from suite.problem.family import Family
from suite.problem.operation import Operation
from suite.problem.shape import Shape
from suite.problem.telling_case import TellingCase
from suite.problem.truth import Truth

ODD = (2, 9, 7, 16, 24, 3, 3, 1, 1)
"""Shape of most families: sizes that are multiples of no tile, except the channels, which TMA reads in 16 bytes."""
STEM = (1, 12, 10, 3, 16, 7, 7, 2, 3)


def channels_first(operand: torch.Tensor, position: int) -> torch.Tensor:
    """Store images (N, H, W, C) in memory as (N, C, H, W), the layout of other libraries."""
    return operand if position else operand.permute(0, 3, 1, 2).contiguous().permute(0, 2, 3, 1)


def single_image_element(value: float) -> numbers.Values:
    """Normal numbers with one `value` in the images.

    Weights have none: times the zeros of the padding it is NaN in an implicit product, but a sum over the part of the
    window inside the image leaves it out.
    """

    def values(shapes: tuple[Shape, ...], case: Case, source: torch.Generator) -> tuple[torch.Tensor, ...]:
        x, weight = (numbers.normals(each, case, source) for each in shapes)
        numbers.put(x, value, tuple(numbers.index_below(size, source) for size in x.shape))
        return x, weight

    return values


def images_of_extremes(shapes: tuple[Shape, ...], case: Case, source: torch.Generator) -> tuple[torch.Tensor, ...]:
    """Images hold the largest number, with one sign an image; weights are so small that no partial sum overflows.

    Only output 0 has weights of 1: its sums exceed the largest number, in any order.
    """
    sign = torch.randint(0, 2, (shapes[0][0], 1, 1, 1), generator=source, device=source.device) * 2.0 - 1.0
    x = (sign * numbers.largest(case)).expand(shapes[0]).to(numbers.dtype_of(case), copy=True)
    weight = numbers.normals(shapes[1], case, source).float() / (8 * max(1, math.prod(shapes[1][1:])))
    weight[:1] = 1.0
    return x.contiguous(), weight.to(x.dtype)


def halves_that_cancel(shapes: tuple[Shape, ...], case: Case, source: torch.Generator) -> tuple[torch.Tensor, ...]:
    """The second half of the channels repeats the first, with weights of opposite sign."""
    x, weight = (numbers.normals(each, case, source) for each in shapes)
    channels = x.shape[3]
    half = channels // 2
    x[..., channels - half :] = x[..., :half]
    weight[..., channels - half :] = (-weight[..., :half].double()).to(weight.dtype)
    return x, weight


class Conv2d(Operation):
    rank = 46
    group = "windows"
    name = "conv2d"
    formula = (
        "y[n, p, q, k] = sum over r, s, c of x[n, p stride + r - padding, q stride + s - padding, c] w[k, r, s, c]"
    )
    dtypes_beyond = (DOUBLE,)
    dims = ("N", "H", "W", "C", "K", "R", "S", "stride", "padding")
    sweep = tuple(
        (n, 14, 14, c, c, 3, 3, 1, 1) for n, c in ((1, 16), (1, 64), (4, 128), (16, 256), (64, 256), (256, 256))
    )
    telling = (
        TellingCase("three_channels", STEM),
        TellingCase("large_result", (2, 64, 66, 3, 16, 1, 1, 1, 0), first=False),
        TellingCase("range_stride", (2, 9, 7, 16, 24, 3, 3, 2, 1), "range", first=False),
        TellingCase("R=131", (1, 140, 1, 1, 1, 131, 1, 1, 0), first=False),
        TellingCase("S=131", (1, 1, 140, 1, 1, 1, 131, 1, 0), first=False),
        TellingCase("R=1024", (1, 1030, 1, 1, 1, 1024, 1, 1, 0), first=False),
        TellingCase("S=1024", (1, 1, 1030, 1, 1, 1, 1024, 1, 0), first=False),
    )
    telling_left_out = ("nan@1", "infinity@1")
    sizes: ClassVar[Mapping[str, tuple[int, ...]]] = {
        "N": (1, 3),
        "H": (1, 7, 12, 33),
        "W": (1, 5, 16, 40),
        "C": (1, 16, 31, 64),
        "K": (1, 24, 31, 64),
        "R": (1, 3, 2, 5),
        "S": (1, 3, 2, 4),
        "stride": (2, 1, 3),
        "padding": (0, 1, 2),
    }
    large = (
        TellingCase("large", (1, 6, 5, 1032, 40, 3, 3, 1, 1)),
        TellingCase("many_pixels", (1, 190, 190, 8, 9, 3, 3, 1, 1)),
        TellingCase("many_images", (70_001, 2, 2, 3, 4, 1, 1, 1, 0)),
    )
    ragged = (
        (1, 1, 1, 1, 1, 1, 1, 1, 0),
        (1, 13, 11, 16, 17, 3, 3, 2, 1),
        STEM,
        (1, 8, 9, 20, 33, 4, 2, 3, 2),
    )
    weights = (1,)
    families: ClassVar = {
        "normal": family.normal(),
        "sizes": family.sizes(*ragged),
        "long_thin": family.long_thin((1, 2, 259, 3, 2, 2, 5, 1, 2)),
        "empty": family.empty((0, 5, 5, 8, 4, 3, 3, 1, 1), (2, 5, 5, 0, 4, 3, 3, 1, 1), (2, 5, 5, 8, 0, 3, 3, 1, 1)),
        "channels_first": Family("images stored as (N, C, H, W)", family.NORMALS, channels_first, shapes=(ODD,)),
        "strided": family.strided_views(ODD),
        "offset": family.offset(ODD),
        "misaligned_rows": family.misaligned_rows(ODD),
        "broadcast": family.broadcast(ODD),
        "subnormal": family.subnormal(ODD, values=numbers.per_operand(numbers.subnormals, numbers.small_integers)),
        "largest": family.large(ODD, values=images_of_extremes),
        "range": family.spread(ODD, 20, -20),
        "signed_zero": family.signed_zero(ODD),
        "infinity": family.infinity(ODD, STEM, values=single_image_element(math.inf)),
        "nan": family.nan(ODD, STEM, values=single_image_element(math.nan)),
        "nan_weights": Family(
            "NaN in a weight; without padding, whose zeros would meet it",
            numbers.per_operand(numbers.normals, numbers.one_nan),
            shapes=((2, 9, 7, 16, 24, 3, 3, 1, 0),),
        ),
        "infinite_weights": Family(
            "infinite weights; without padding, whose zeros would meet them",
            specials.values("infinity@1", family.NORMALS),
            shapes=((2, 9, 7, 16, 24, 3, 3, 1, 0),),
        ),
        "cancellation": family.cancellation(ODD, values=halves_that_cancel),
        "huge": family.huge((2**11 + 1, 128, 128, 64, 64, 1, 1, 1, 0)),
    }

    def precisions(self, dtype: str) -> tuple[str, ...]:
        return ("ieee", "tf32") if dtype == "float32" else ("ieee",)

    def default_cases(self, device_type: str) -> list[Case]:
        """Cases on a GPU: layers of ResNet-50 with 256 images: 3 x 3 of each size, one 1 x 1, the first layer."""
        if device_type != "cuda":
            return [self.case((1, 8, 8, 16, 24, 3, 3, 1, 1), dtype) for dtype in DTYPES]
        return [
            self.case((256, 56, 56, 64, 64, 3, 3, 1, 1), "bfloat16"),
            self.case((256, 28, 28, 128, 128, 3, 3, 1, 1), "float32", "tf32"),
            self.case((256, 14, 14, 256, 256, 3, 3, 1, 1), "bfloat16"),
            self.case((256, 7, 7, 512, 512, 3, 3, 1, 1), "float16"),
            self.case((256, 56, 56, 64, 256, 1, 1, 1, 0), "bfloat16"),
            self.case((256, 224, 224, 3, 64, 7, 7, 2, 3), "bfloat16"),
        ]

    def parse_shapes(self, text: str) -> list[Shape]:
        """Parse shapes as other operations do; `stride` is 1 and `padding` 0 where the text leaves them out."""
        found = shape.parse(text, self.name, self.dims, is_square=False, defaults={"stride": 1, "padding": 0})
        for dims in found:
            self.validate(dims)
        return [tuple(dims.values()) for dims in found]

    def validate(self, dims: Mapping[str, int]) -> None:
        for name in ("R", "S", "stride"):
            if dims[name] < 1:
                raise UsageError(f"--shape: {name}={dims[name]} must be at least 1")
        for size, taps in (("H", "R"), ("W", "S")):
            room = dims[size] + 2 * dims["padding"]
            if dims[taps] > room:
                raise UsageError(f"--shape: {taps}={dims[taps]} must be at most {size} + 2 padding = {room}")

    def random_shape(self, size: Callable[[], int]) -> Shape:
        r, s, padding = 1 + size() % 4, 1 + size() % 4, size() % 3
        height, width = (max(1, taps - 2 * padding) + size() % 12 for taps in (r, s))
        return (size() % 3, height, width, size(), size(), r, s, 1 + size() % 3, padding)

    def operands(self, case: Case) -> tuple[Shape, ...]:
        n, h, w, c, k, r, s, _, _ = case.shape
        return ((n, h, w, c), (k, r, s, c))

    def arguments(self, case: Case) -> dict[str, Any]:
        return {"stride": case["stride"], "padding": case["padding"], "precision": case.precision}

    def output_shape(self, case: Case) -> Shape:
        n, h, w, _, k, r, s, stride, padding = case.shape
        return (n, (h + 2 * padding - r) // stride + 1, (w + 2 * padding - s) // stride + 1, k)

    def truth(self, inputs: tuple[torch.Tensor, ...], case: Case) -> Iterator[Truth]:
        """Yield some whole images at a time, or some rows of one."""
        n, p, q, k = self.output_shape(case)
        images, rows = self._judged_at_once(case)
        weight = inputs[1].double()
        for first in range(0, n, images):
            some = slice(first, min(first + images, n))
            padding = case["padding"]
            x = torch.nn.functional.pad(inputs[0][some].double(), (0, 0, padding, padding, padding, padding))
            equal = equal_channels(x, weight)
            for top in range(0, p, rows):
                span = slice(top, min(top + rows, p))
                value, spread_squared = products(x, weight, span, q, case["stride"])
                terms = math.prod(weight.shape[1:])
                kind = case.dtype, case.precision, equal
                bound = matmul_limit(value, spread_squared, terms, n * p * q * k, *kind)
                noise = product_noise(value, spread_squared, (n * p * q, k, terms), *kind)
                del spread_squared
                yield Truth((some, span, slice(0, q), slice(0, k)), value, bound, noise)
                del value, bound

    def _judged_at_once(self, case: Case) -> tuple[int, int]:
        """Return the numbers of images, and of rows of the output, that are judged at a time."""
        _, p, q, k = self.output_shape(case)
        images = min(rows_per_block(p * q * k), rows_per_block(self._padded(case)))
        return images, max(1, min(p, rows_per_block(q * k) if images == 1 else p))

    def _padded(self, case: Case) -> int:
        """Count the elements of an image with its padding."""
        return (case["H"] + 2 * case["padding"]) * (case["W"] + 2 * case["padding"]) * case["C"]

    def flops(self, case: Case) -> int:
        """Count the operations of the matrix product. Taps in the padding count too, as is usual."""
        return 2 * math.prod(self.output_shape(case)) * case["R"] * case["S"] * case["C"]

    def workspace_bytes(self, case: Case) -> int:
        """Count ten float64 arrays of a block of the output, three of its images, and three of the weights."""
        images, rows = self._judged_at_once(case)
        _, _, q, k = self.output_shape(case)
        images = min(images, max(1, case["N"]))
        block = min(images * rows * q * k, BLOCK_ELEMENTS)
        weights = math.prod(self.operands(case)[1])
        return 8 * (10 * block + 3 * images * self._padded(case) + 3 * weights)


def equal_channels(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Return how many terms of an output are equal: weights and pixels repeat along the channels; (outputs,)."""
    of_pixels = repeats(x.reshape(-1, x.shape[3])).amax() if x.numel() else 1.0
    return repeats(weight.flatten(1)).view(-1).clamp(max=of_pixels)


def products(
    x: torch.Tensor, weight: torch.Tensor, rows: slice, columns: int, stride: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return rows of the convolution of padded images, and the sums of the squares of its terms, in float64.

    x (images, height, width, C), weight (K, R, S, C). Each tap is one matrix product.
    """
    outputs, taps_y, taps_x, channels = weight.shape
    shape = (x.shape[0], rows.stop - rows.start, columns)
    value, spread_squared = (x.new_zeros(math.prod(shape), outputs) for _ in range(2))
    for r in range(taps_y):
        at = slice(rows.start * stride + r, (rows.stop - 1) * stride + r + 1, stride)
        for s in range(taps_x):
            pixels = x[:, at, s : s + (columns - 1) * stride + 1 : stride].reshape(math.prod(shape), channels)
            factors = weight[:, r, s].T
            value.addmm_(pixels, factors)
            spread_squared.addmm_(pixels.square(), factors.square())
    return value.view(*shape, outputs), spread_squared.view(*shape, outputs)


OP = Conv2d()
