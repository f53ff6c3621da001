"""int4_matmul: Y = X W^T with weights of 4 bits, a scale and perhaps a zero point for each group of 128 of them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import ClassVar

import torch

from suite.core.integers import cdiv
from suite.numerics.bounds import MARGIN
from suite.numerics.repeats import repeats_of_products
from suite.ops.matmul import matmul_limit
from suite.problem import blocks, family, numbers
from suite.problem.case import Case
from suite.problem.family import Family
from suite.problem.operation import Operation
from suite.problem.option import Option
from suite.problem.shape import Shape
from suite.problem.telling_case import TellingCase
from suite.problem.truth import Truth

GROUP = 128
"""Weights of a row that share a scale and a zero point."""
MIDDLE = 8
"""The code of a weight of 0 where there are no zero points."""
ODD = (33, 70, 300)
"""Shape of most families: no multiple of a tile, and a last group that is a part of one."""
DTYPES = ("bfloat16", "float16")
ZEROS = {"zeros": (False, True)}


def unpacked(weight: torch.Tensor, k: int) -> torch.Tensor:
    """Return the codes of packed weights, (N, K) uint8: the lower four bits of a byte come first."""
    return torch.stack((weight & 15, weight >> 4), 2).flatten(1)[:, :k]


def packed(codes: torch.Tensor) -> torch.Tensor:
    """Return codes (N, K) two to a byte, (N, K / 2). The last byte of an odd K has 0 in its upper half."""
    even = torch.nn.functional.pad(codes, (0, codes.shape[1] % 2))
    return even[:, 0::2] | even[:, 1::2] << 4


def per_term(per_group: torch.Tensor, k: int) -> torch.Tensor:
    """Return the scale, or zero point, of each term: that of its group, (N, K)."""
    return per_group.repeat_interleave(GROUP, 1)[:, :k]


def dequantized(weight: torch.Tensor, scale: torch.Tensor, zero: torch.Tensor | None, k: int) -> torch.Tensor:
    """Return the weights, (N, K) float64."""
    middle = MIDDLE if zero is None else per_term(zero, k).double()
    return (unpacked(weight, k).double() - middle) * per_term(scale, k).double()


def product(
    x: torch.Tensor, w: torch.Tensor, case: Case, equal: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return a block of Y and its bound, float64. x: (rows, K) in the case's dtype. w: (columns, K) float64. equal: how
    many terms of each sum are equal; None if all differ.

    A kernel may round each weight to the dtype once, to nearest. That changes y by x (rounded(w) - w), which is known.
    The result is then rounded where y and its error lie.
    """
    x, rounded = x.double(), w.to(x.dtype).double()
    value = x @ w.mT
    spread_squared = x.square() @ w.square().mT
    of_rounding = (x @ rounded.sub_(w).mT).abs_()
    size, count = value.abs().add_(of_rounding), case["M"] * case["N"]
    bound = matmul_limit(size, spread_squared, w.shape[1], count, case.dtype, "ieee", equal)
    return value, bound.add_(of_rounding, alpha=MARGIN)


def codes_between(low: int, high: int, shape: Shape, source: torch.Generator) -> torch.Tensor:
    """Draw packed codes from low to high, both included."""
    n, half = shape
    return packed(torch.randint(low, high + 1, (n, 2 * half), generator=source, device=source.device).byte())


def drawn_scales(shape: Shape, case: Case, source: torch.Generator, powers: tuple[int, int] = (-6, -4)) -> torch.Tensor:
    """Draw scales from 1.25 to 1.75 times a power of two between these; none is a power of two."""
    exponents = torch.randint(powers[0], powers[1] + 1, shape, generator=source, device=source.device)
    factors = torch.rand(shape, generator=source, device=source.device) / 2 + 1.25
    return (factors * torch.exp2(exponents)).to(numbers.dtype_of(case))


def powers_of_two(shape: Shape, case: Case, source: torch.Generator) -> torch.Tensor:
    exponents = torch.randint(-6, -3, shape, generator=source, device=source.device)
    return torch.exp2(exponents).to(numbers.dtype_of(case))


def quarters(shape: Shape, case: Case, source: torch.Generator) -> torch.Tensor:
    """Numbers from 1 to 1.75 in steps of 1/4."""
    drawn = torch.randint(4, 8, shape, generator=source, device=source.device)
    return (drawn / 4.0).to(numbers.dtype_of(case))


def uneven_scales(shapes: tuple[Shape, ...], case: Case, source: torch.Generator) -> tuple[torch.Tensor, ...]:
    """Scales of groups are from 2^-10 to 1 with either sign; in bfloat16 those of every second row lie below the range
    of float16."""
    x, weight = numbers.normals(shapes[0], case, source), codes_between(0, 15, shapes[1], source)
    scale = numbers.with_signs(drawn_scales(shapes[2], case, source, (-10, 0)), source)
    if case.dtype == "bfloat16":
        scale[1::2] *= 2.0**-30
    return (x, weight, scale, *drawn_zeros(shapes, case, source))


def some_zero_scales(shapes: tuple[Shape, ...], case: Case, source: torch.Generator) -> tuple[torch.Tensor, ...]:
    """A third of the scales are 0, as those of groups of zeros may be."""
    x, weight = numbers.normals(shapes[0], case, source), codes_between(0, 15, shapes[1], source)
    scale = drawn_scales(shapes[2], case, source)
    none = torch.rand(scale.shape, generator=source, device=source.device) < 0.3
    return (x, weight, scale.masked_fill(none, 0.0), *drawn_zeros(shapes, case, source))


def exact_products(shapes: tuple[Shape, ...], case: Case, source: torch.Generator) -> tuple[torch.Tensor, ...]:
    """Small integers times weights whose scales are powers of two: no sum is rounded."""
    x, weight = numbers.small_integers(shapes[0], case, source), codes_between(0, 15, shapes[1], source)
    return (x, weight, powers_of_two(shapes[2], case, source), *drawn_zeros(shapes, case, source))


def growing_sums(shapes: tuple[Shape, ...], case: Case, source: torch.Generator) -> tuple[torch.Tensor, ...]:
    """Positive numbers times positive weights: partial sums that are rounded to 16 bits drift."""
    x, weight = quarters(shapes[0], case, source), codes_between(9, 15, shapes[1], source)
    return (x, weight, powers_of_two(shapes[2], case, source), *drawn_zeros(shapes, case, source))


def groups_that_cancel(shapes: tuple[Shape, ...], case: Case, source: torch.Generator) -> tuple[torch.Tensor, ...]:
    """Every second group repeats the one before with opposite signs of x, but for x of its first term."""
    x, weight, scale, *zero = growing_sums(shapes, case, source)
    for start in range(GROUP, x.shape[1] - x.shape[1] % GROUP, 2 * GROUP):
        before, now = slice(start - GROUP, start), slice(start, start + GROUP)
        x[:, now] = -x[:, before]
        x[:, start] += 0.25
        weight[:, start // 2 : (start + GROUP) // 2] = weight[:, (start - GROUP) // 2 : start // 2]
        for each in (scale, *zero):
            each[:, start // GROUP] = each[:, start // GROUP - 1]
    return (x, weight, scale, *zero)


def drawn_zeros(shapes: tuple[Shape, ...], case: Case, source: torch.Generator) -> tuple[torch.Tensor, ...]:
    """Draw zero points if the operands have them: codes from 0 to 15."""
    return tuple(torch.randint(16, each, generator=source, device=source.device).byte() for each in shapes[3:])


class Int4Matmul(Operation):
    rank = 45
    group = "products"
    name = "int4_matmul"
    formula = (
        "Y[m, n] = sum over k of X[m, k] scale[n, k // 128] (code[n, k] - zero[n, k // 128]), with codes of 4 bits, "
        "two to a byte along K, and zero from 0 to 15, or 8 if it is not given"
    )
    dims = ("M", "N", "K")
    is_square = True
    dtypes = DTYPES
    options: ClassVar[tuple[Option, ...]] = (
        Option("zeros", (False, True), "a zero point for each group instead of 8 for all"),
    )
    sweep = tuple((m, 4096, 4096) for m in (1, 16, 64, 256, 1024, 4096))
    sizes: ClassVar = {"N": (1, 70, 128, 257), "K": (1, 300, 128, 257, 1024)}
    telling = (
        TellingCase("last_group", (40, 72, 129), options={"zeros": True}),
        TellingCase("many_groups", (3, 2, 8_341), options={"zeros": True}),
        TellingCase("many_columns", (2, 8_341, 3)),
        TellingCase("1024_groups", (2, 2, 131_072), first=False),
    )
    large = (
        TellingCase("large", (40, 72, 16_392)),
        TellingCase("many_rows", (70_001, 9, 136)),
        TellingCase("many_columns", (9, 70_001, 136)),
    )
    # Codes have no special numbers. Infinite and subnormal scales depend on whether weights are rounded. An infinite x
    # depends on whether zero points are subtracted from the codes or from the sums.
    telling_left_out = ("nan@1", "infinity@", "subnormal@")
    ragged: ClassVar[tuple[Shape, ...]] = (
        (1, 1, 1), (1, 129, 257), (65, 1, 127), (7, 300, 129), (16, 128, 256), (64, 64, 128), (129, 257, 40),
    )  # fmt: skip
    families: ClassVar = {
        name: replace(each, dtypes=DTYPES)
        for name, each in {
            "normal": family.normal(),
            "sizes": replace(family.sizes(*ragged), options=ZEROS),
            "long_thin": family.long_thin((1, 1031, 3), (1031, 2, 1), (3, 2, 1031)),
            "empty": family.empty((3, 4, 0), (0, 4, 3), (3, 0, 4)),
            "strided": replace(family.strided_views(ODD), options=ZEROS),
            "offset": family.offset(ODD, (64, 32, 128)),
            "misaligned_rows": family.misaligned_rows((33, 64, 256)),
            "broadcast": family.broadcast(ODD),
            "uneven": Family(
                "scales far apart: expose that of another row or group", uneven_scales, shapes=(ODD, (137, 264, 520)),
                options=ZEROS,
            ),
            "zero_scales": Family("groups whose scale is 0", some_zero_scales, shapes=(ODD,)),
            "range": family.spread(ODD, 20),
            "signed_zero": family.signed_zero(ODD),
            "infinity": family.infinity(ODD, values=numbers.per_operand(numbers.some_infinite, numbers.normals)),
            "nan": family.nan(ODD),
            "exact_products": Family(
                "exact sums and exact weights", exact_products, shapes=(ODD, (5, 64, 1024)), options=ZEROS
            ),
            "growing_sums": Family(
                "positive terms, which expose sums rounded to 16 bits", growing_sums, shapes=((5, 32, 4096), ODD)
            ),
            "cancellation": Family(
                "groups whose sums nearly cancel, which expose a rounded sum", groups_that_cancel,
                shapes=((33, 70, 512), (5, 9, 1024)),
            ),
            "huge": family.huge((2**16 + 1, 2**15 + 1, 128)),
        }.items()
    }  # fmt: skip

    def family(self, inputs: str) -> Family:
        """Return the family with codes, scales and zero points, unless it draws them. A scale is NaN where it was."""
        found = super().family(inputs)

        def values(shapes: tuple[Shape, ...], case: Case, source: torch.Generator) -> tuple[torch.Tensor, ...]:
            x, weight, scale, *zero = found.values(shapes, case, source)
            if weight.dtype == torch.uint8:
                return (x, weight, scale, *zero)
            nan, scale = scale.isnan(), drawn_scales(shapes[2], case, source)
            codes = codes_between(0, 15, shapes[1], source)
            return (x, codes, scale.masked_fill_(nan, math.nan), *drawn_zeros(shapes, case, source))

        return replace(found, values=values)

    def second_case(self, case: Case) -> Case:
        """Return the family of exact products: there the bound has no room for rounded weights."""
        return replace(case, inputs="exact_products") if case.inputs == "normal" else case

    def default_cases(self, device_type: str) -> list[Case]:
        """Cases on a GPU: layers of Llama 3 8B and 70B for 1 to 4096 tokens."""
        if device_type != "cuda":
            return [self.case(ODD, dtype, zeros=zeros) for dtype in DTYPES for zeros in (False, True)]
        layers = ((4096, 4096), (28672, 8192), (8192, 28672))
        cases = [self.case((m, *layer)) for m in (1, 8, 32, 4096) for layer in layers]
        more = [self.case((m, 28672, 8192), zeros=True) for m in (1, 4096)]
        return [*cases, *more, self.case((4096, 4096, 4096), "float16")]

    def operands(self, case: Case) -> tuple[Shape, ...]:
        m, n, k = case.shape
        of_groups = (n, cdiv(k, GROUP))
        return ((m, k), (n, cdiv(k, 2)), *[of_groups] * (2 if case.option("zeros") else 1))

    def operand_dtypes(self, case: Case) -> tuple[str, ...]:
        return (case.dtype, "uint8", case.dtype, *["uint8"] * bool(case.option("zeros")))

    def truth(self, inputs: tuple[torch.Tensor, ...], case: Case) -> Iterator[Truth]:
        m, n, k = case.shape
        x, weight, scale, *zero = inputs
        w = dequantized(weight, scale, zero[0] if zero else None, k)
        for rows, columns in blocks.blocks((m, n)):
            equal = repeats_of_products(x[rows].double(), w[columns].mT)
            value, bound = product(x[rows], w[columns], case, equal)
            yield Truth((rows, columns), value, bound)
            del value, bound

    def output_shape(self, case: Case) -> Shape:
        return (case["M"], case["N"])

    def flops(self, case: Case) -> int:
        """Count the product. The weights are made once: N K more operations, which are left out."""
        return 2 * case["M"] * case["N"] * case["K"]

    def workspace_bytes(self, case: Case) -> int:
        """Count float64 arrays of all weights, of x, and of a block of results."""
        m, n, k = case.shape
        rows = min(m, blocks.rows_per_block(n))
        return 8 * (5 * k * n + 3 * rows * k) + blocks.block_bytes((m, n), arrays=14)


OP = Int4Matmul()
