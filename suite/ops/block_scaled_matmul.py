"""block_scaled_matmul: C = A B^T of float8 codes, with a scale for 128 columns of A and one for 128 x 128 of B."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import ClassVar

import torch

from suite.core.integers import cdiv
from suite.numerics.bounds import deviations, limit, sum_variance
from suite.numerics.float8 import FLOAT8, FLOAT8_SUM_BITS, sum_losses
from suite.numerics.formats import MAX_FINITE, half_smallest, unit_roundoff
from suite.ops.matmul import grain
from suite.problem import blocks, family, numbers
from suite.problem.case import Case
from suite.problem.family import Family
from suite.problem.operation import Operation
from suite.problem.shape import Shape
from suite.problem.telling_case import TellingCase
from suite.problem.truth import Truth

GROUP = 128
"""Terms of K, and rows of B, that share a scale."""
SCALE_ROUNDINGS = 4.0
"""Largest relative error of a group's scaled sum, in unit roundoffs of float32. A kernel may round the product of the
scales and its product with the sum. If it scales the codes first, it rounds two factors and their products."""
ODD = (33, 140, 300)
"""Shape of most families: no multiple of a tile, two rows of scales of B, and a last group that is a part of one."""


def groups(k: int) -> Iterator[tuple[int, slice]]:
    """Yield the number of each group of K and its terms."""
    for number, start in enumerate(range(0, k, GROUP)):
        yield number, slice(start, min(start + GROUP, k))


def scaled_product(
    a: torch.Tensor, scale_a: torch.Tensor, b: torch.Tensor, scale_b: torch.Tensor, *, step: float, count: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return a block of C and its bound, float64.

    a, b: (rows, K) and (columns, K). scale_a, scale_b: (rows, groups) and (columns, groups), one for each row and
    column. step: every product of two codes is a multiple of this number. count: results of the whole output.

    1. The sum of a group is a chain of tensor cores, with the errors of `sum_losses`, times its scales. It is exact if
       no partial sum reaches 2^14 steps.
    2. Scaled sums, or all scaled products, are added in float32.
    3. A scaled sum has SCALE_ROUNDINGS.

    In the worst case each of a group's n - 1 products and sums loses 4u of |a||b| <= sqrt(n) spread.
    """
    k, u, fine = a.shape[1], 2.0**-FLOAT8_SUM_BITS, unit_roundoff("float32")
    value, spread_squared, systematic, variance, greatest, sizes = (
        torch.zeros(len(a), len(b), dtype=torch.float64, device=a.device) for _ in range(6)
    )
    for number, span in groups(k):
        scale = scale_a[:, number, None].double() * scale_b[:, number].double()
        x, y = a[:, span].double(), b[:, span].double()
        total, squares, terms = x @ y.mT, x.square() @ y.square().mT, x.shape[1]
        lost, lost_variance = sum_losses(total, squares, terms, terms)
        worst = squares.sqrt()
        exact = total.abs() + worst * deviations(count * k) < 2.0**FLOAT8_SUM_BITS * step
        worst *= 4.0 * u * (terms - 1) * math.sqrt(terms)
        total *= scale
        value += total
        sizes += total.abs_()
        scale.abs_()
        systematic += lost.masked_fill_(exact, 0.0).mul_(scale)
        greatest += worst.masked_fill_(exact, 0.0).mul_(scale)
        scale.square_()
        variance += lost_variance.masked_fill_(exact, 0.0).mul_(scale)
        spread_squared += squares.mul_(scale)
    variance += sum_variance(value, spread_squared, k, None)
    systematic += variance.sqrt_().mul_(deviations(count))
    greatest += spread_squared.sqrt_().mul_(fine * (k - 1) * math.sqrt(k)).add_(k * half_smallest("float32"))
    error = torch.minimum(systematic, greatest) + sizes * (SCALE_ROUNDINGS * fine)
    return value, limit(error, value, "bfloat16")


def drawn_scales(shape: Shape, source: torch.Generator, powers: tuple[int, int] = (-8, -5)) -> torch.Tensor:
    """Draw float32 scales from 1.25 to 1.75 times a power of two between these; none is a power of two."""
    exponents = torch.randint(powers[0], powers[1] + 1, shape, generator=source, device=source.device)
    return (torch.rand(shape, generator=source, device=source.device) / 2 + 1.25) * torch.exp2(exponents)


def uneven_scales(shapes: tuple[Shape, ...], case: Case, source: torch.Generator) -> tuple[torch.Tensor, ...]:
    """Scales from 2^-18 to 7, with either sign."""
    a, b = (numbers.normals(shapes[i], case, source) for i in (0, 2))
    scale_a, scale_b = (numbers.with_signs(drawn_scales(shapes[i], source, (-18, 2)), source) for i in (1, 3))
    return a, scale_a, b, scale_b


def some_zero_scales(shapes: tuple[Shape, ...], case: Case, source: torch.Generator) -> tuple[torch.Tensor, ...]:
    """A third of the scales are 0, as those of groups of zeros may be."""
    a, b = (numbers.normals(shapes[i], case, source) for i in (0, 2))
    scales = [drawn_scales(shapes[i], source) for i in (1, 3)]
    scales = [torch.where(torch.rand(each.shape, generator=source, device=source.device) < 0.3, 0.0, each)
              for each in scales]  # fmt: skip
    return a, scales[0], b, scales[1]


def largest_codes(shape: Shape, case: Case, source: torch.Generator) -> torch.Tensor:
    """448, with one sign for most of a row."""
    signs = torch.where(torch.rand(shape, generator=source, device=source.device) < 0.1, -1.0, 1.0)
    signs *= torch.randint(0, 2, (*shape[:-1], 1), generator=source, device=source.device) * 2.0 - 1.0
    return (signs * MAX_FINITE[FLOAT8]).to(numbers.dtype_of(case))


def quarters(shape: Shape, case: Case, source: torch.Generator) -> torch.Tensor:
    """Numbers from 1 to 1.75 in steps of 1/4: the sum of 128 products is exact in 14 bits, a longer sum is not."""
    drawn = torch.randint(4, 8, shape, generator=source, device=source.device)
    return (drawn / 4.0).to(numbers.dtype_of(case))


def groups_that_cancel(shapes: tuple[Shape, ...], case: Case, source: torch.Generator) -> tuple[torch.Tensor, ...]:
    """Every second group repeats the one before with the opposite sign, and scales of a that are larger by 2^-7."""
    a, b = (quarters(shapes[i], case, source).float() for i in (0, 2))
    scale_a, scale_b = (drawn_scales(shapes[i], source) for i in (1, 3))
    for number, span in groups(a.shape[1]):
        if number % 2:
            before = slice(span.start - GROUP, span.stop - GROUP)
            a[..., span], b[..., span] = -a[..., before], b[..., before]
            scale_a[..., number] = scale_a[..., number - 1] * (1.0 + 2.0**-7)
            scale_b[..., number] = scale_b[..., number - 1]
    kind = numbers.dtype_of(case)
    return a.to(kind), scale_a, b.to(kind), scale_b


def with_scales(found: Family) -> Family:
    """Return the family with float32 scales in place of codes, NaN where these are NaN, unless it draws scales."""

    def values(shapes: tuple[Shape, ...], case: Case, source: torch.Generator) -> tuple[torch.Tensor, ...]:
        a, of_a, b, of_b = found.values(shapes, case, source)
        of_a, of_b = (
            each if each.dtype == torch.float32
            else drawn_scales(tuple(each.shape), source).masked_fill(each.float().isnan(), math.nan)
            for each in (of_a, of_b)
        )  # fmt: skip
        return a, of_a, b, of_b

    return replace(found, values=values)


class BlockScaledMatmul(Operation):
    rank = 44
    group = "products"
    name = "block_scaled_matmul"
    formula = (
        "C[i, j] = sum over groups g of scale_a[i, g] scale_b[j // 128, g] times "
        "the sum over k in g of A[i, k] B[j, k], where g holds 128 terms of K"
    )
    dims: tuple[str, ...] = ("M", "N", "K")
    is_square = True
    dtypes = (FLOAT8,)
    sweep = tuple((n, n, n) for n in (64, 256, 1024, 2048, 4096, 8192))
    sizes: ClassVar = {"N": (1, 140, 128, 257), "K": (1, 300, 128, 257, 1024)}
    telling: ClassVar[tuple[TellingCase, ...]] = (
        TellingCase("last_group", (40, 136, 129)),
        TellingCase("many_groups", (3, 2, 8_341)),
        TellingCase("many_blocks", (2, 8_341, 3)),
        TellingCase("1024_groups", (2, 2, 131_072), first=False),
        TellingCase("1024_blocks", (2, 131_072, 2), first=False),
    )
    large: ClassVar[tuple[TellingCase, ...]] = (
        TellingCase("large", (40, 72, 16_392)),
        TellingCase("many_rows", (70_001, 9, 136)),
        TellingCase("many_columns", (9, 70_001, 136)),
    )
    # Infinite scales times sums of either sign, and scales below the normal range, depend on the order of products.
    telling_left_out: tuple[str, ...] = ("infinity@", "subnormal@1", "subnormal@3")
    ragged: ClassVar[tuple[Shape, ...]] = (
        (1, 1, 1), (1, 129, 257), (65, 1, 127), (7, 300, 129), (64, 128, 128), (129, 257, 40),
    )  # fmt: skip
    weights = (2,)
    families: ClassVar = {
        name: replace(each, dtypes=(FLOAT8,))
        for name, each in {
            "normal": family.normal(),
            "sizes": family.sizes(*ragged),
            "long_thin": family.long_thin((1, 1031, 3), (1031, 2, 1), (3, 2, 1031)),
            "empty": family.empty((3, 4, 0), (0, 4, 3), (3, 0, 4)),
            "strided": family.strided_views(ODD),
            "offset": family.offset(ODD, (64, 32, 128)),
            "misaligned_rows": family.misaligned_rows((33, 64, 256)),
            "broadcast": family.broadcast(ODD),
            "uneven": Family(
                "scales far apart, which expose the scale of another row or group",
                uneven_scales,
                shapes=(ODD, (137, 264, 520)),
            ),
            "zero_scales": Family("groups whose scale is 0", some_zero_scales, shapes=(ODD,)),
            "subnormal": family.subnormal(
                ODD, values=numbers.per_operand(numbers.subnormals, numbers.normals, numbers.small_integers)
            ),
            "largest": Family("the largest codes, 448", numbers.per_operand(largest_codes), shapes=(ODD,)),
            "signed_zero": family.signed_zero(ODD),
            "nan": family.nan(ODD),
            "exact_sums": Family(
                "codes whose sums are exact up to 128 products, and not beyond",
                numbers.per_operand(quarters),
                shapes=((24, 32, 4096), ODD),
            ),
            "cancellation": Family(
                "exact sums of groups that nearly cancel, which expose factors rounded after scaling",
                groups_that_cancel,
                shapes=((33, 140, 512), (40, 9, 256)),
            ),
            "huge": family.huge((2**16 + 1, 2**15 + 1, 128)),
        }.items()
    }

    def precisions(self, dtype: str) -> tuple[str, ...]:
        return ("promoted",)

    def family(self, inputs: str) -> Family:
        return with_scales(super().family(inputs))

    def second_case(self, case: Case) -> Case:
        """Return the family of exact sums: the bound for normal numbers hides sums of more than 128 products."""
        return replace(case, inputs="exact_sums") if case.inputs == "normal" else case

    def default_cases(self, device_type: str) -> list[Case]:
        """Cases on a GPU: layers of DeepSeek-V3 with many tokens, and with 64 and fewer."""
        if device_type != "cuda":
            return [self.case((70, 140, 300), FLOAT8)]
        many = ((4096, 7168, 16384), (4096, 4096, 7168), (4096, 7168, 2048), (1024, 18432, 7168))
        few = ((64, 7168, 16384), (64, 24576, 1536), (16, 7168, 18432), (1, 7168, 18432))
        return [self.case(shape, FLOAT8) for shape in (*many, *few)]

    def operands(self, case: Case) -> tuple[Shape, ...]:
        m, n, k = case.shape
        return ((m, k), (m, cdiv(k, GROUP)), (n, k), (cdiv(n, GROUP), cdiv(k, GROUP)))

    def operand_dtypes(self, case: Case) -> tuple[str, ...]:
        return (FLOAT8, "float32", FLOAT8, "float32")

    def output_dtype(self, case: Case) -> str:
        return "bfloat16"

    def truth(self, inputs: tuple[torch.Tensor, ...], case: Case) -> Iterator[Truth]:
        m, n, _ = case.shape
        a, scale_a, b, scale_b = inputs
        step = grain(a) * grain(b)
        scale_b = scale_b.repeat_interleave(GROUP, 0)[:n]
        for rows, columns in blocks.blocks((m, n)):
            value, bound = scaled_product(
                a[rows], scale_a[rows], b[columns], scale_b[columns], step=step, count=m * n
            )  # fmt: skip
            yield Truth((rows, columns), value, bound)
            del value, bound

    def output_shape(self, case: Case) -> Shape:
        return (case["M"], case["N"])

    def flops(self, case: Case) -> int:
        return 2 * case["M"] * case["N"] * case["K"]

    def workspace_bytes(self, case: Case) -> int:
        """Count the scales of all rows of B, the codes of a group, and float64 arrays of a block of results."""
        m, n, k = case.shape
        rows = min(m, blocks.rows_per_block(n))
        scales = 4 * n * cdiv(k, GROUP)
        return scales + 16 * GROUP * (rows + n) + blocks.block_bytes((m, n), arrays=18)


OP = BlockScaledMatmul()
