"""matmul: C = A B, shapes (M, K) x (K, N), any strides; with float8 times a scale of A and one of B, in bfloat16."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, ClassVar

import torch

from suite.numerics.bounds import MMA_DEPTH, deviations, limit, sum_shift, sum_variance, truncation
from suite.numerics.float8 import FLOAT8, float8_limit, scales
from suite.numerics.formats import DOUBLE, DTYPES, half_smallest, unit_roundoff, working
from suite.numerics.noise import Noise, sample
from suite.numerics.repeats import repeats_of_products
from suite.problem import blocks, family, numbers
from suite.problem.case import Case
from suite.problem.family import Family
from suite.problem.operation import Operation
from suite.problem.option import Option, Value
from suite.problem.shape import Shape
from suite.problem.telling_case import TellingCase
from suite.problem.truth import Truth


def matmul_limit(
    value: torch.Tensor,
    spread_squared: torch.Tensor,
    terms: int,
    count: int,
    dtype: str,
    precision: str,
    repeated: torch.Tensor | None = None,
) -> torch.Tensor:
    """Return the bound for c = sum over `terms` of a_k b_k, one of `count` outputs.

    value: c. spread_squared: sum of (a_k b_k)^2. Both float64. repeated: how many terms are equal; None if all differ.

    For tf32, hardware may round each input to nearest or truncate it. Truncation is a shift towards zero by u of each
    factor, 2u|c| in all, and an error that is uniform within u, like that of rounding.

    In the worst case n - 1 roundings (or truncations, twice as large) are relative to |a||b| <= sqrt(n) spread: those
    of float32 products and partial sums, or of the sums alone where products are exact. tf32 loses 4u of each product.
    """
    systematic, variance = product_error(value, spread_squared, terms, dtype, precision, repeated)
    depth = MMA_DEPTH.get(product_kind(dtype, precision))
    worst = (terms - 1) * unit_roundoff(working(dtype)) * (1.0 if depth is None else 2.0)
    if precision == "tf32":
        worst += 4.0 * unit_roundoff("tf32")
    probable = systematic + variance.sqrt() * deviations(count)
    greatest = spread_squared.sqrt() * (worst * math.sqrt(terms)) + terms * half_smallest(working(dtype))
    return limit(torch.minimum(probable, greatest), value, dtype)


SPLIT_TERMS, SPLIT_DEPTH = 64, 8
"""Terms that split products add on tensor cores before the sum goes to float32, and those of one addition."""


def product_kind(dtype: str, precision: str) -> str:
    """Return the type that tensor cores multiply."""
    return "tf32" if precision == "tf32" else dtype


def product_error(
    value: torch.Tensor,
    spread_squared: torch.Tensor,
    terms: int,
    dtype: str,
    precision: str,
    repeated: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the systematic error and the variance of a matrix product, as `matmul_limit` derives them.

    value: the sums. spread_squared: the sums of the squares of their terms. repeated: how many of these are equal.
    """
    kind = product_kind(dtype, precision)
    depth = MMA_DEPTH.get(kind)
    systematic = torch.zeros_like(value) + sum_shift(value, terms, depth)
    variance = sum_variance(value, spread_squared, terms, depth, repeated, dtype)
    if kind == "tf32":
        u = unit_roundoff("tf32")
        systematic += value.abs() * (2.0 * u)
        variance += spread_squared * (1.0 if repeated is None else repeated) * (2.0 * u**2 / 3.0)
    return systematic, variance


def product_noise(
    value: torch.Tensor,
    spread_squared: torch.Tensor,
    shape: tuple[int, int, int],
    dtype: str,
    precision: str,
    repeated: torch.Tensor | None = None,
) -> Noise:
    """Return the noise of a matrix product of M, N and K terms, `shape`.

    An input's rounding changes a row or a column of results, so the roundings of the smaller operand count. Float32
    products by parts of bfloat16 are sums on tensor cores, which lose up to SPLIT_TERMS terms' truncations.
    """
    m, n, k = shape
    at = sample(tuple(value.shape), value.device)
    some = None if repeated is None else repeated.broadcast_to(value.shape)[at]
    systematic, variance = product_error(value[at], spread_squared[at], k, dtype, precision, some)
    if product_kind(dtype, precision) == "float32":
        systematic += value[at].abs() * truncation(min(k, SPLIT_TERMS), SPLIT_DEPTH)
    return Noise(systematic, variance, min(m * n, m * k, n * k))


def rows_of_extremes(shapes: tuple[Shape, ...], case: Case, source: torch.Generator) -> tuple[torch.Tensor, ...]:
    """A holds the largest number, with one sign per row; B is so small that no partial sum overflows.

    B's first column is 1: its sums exceed the largest number, in any order.
    """
    (m, k), (_, n) = shapes
    sign = torch.randint(0, 2, (m, 1), generator=source, device=source.device) * 2.0 - 1.0
    a = (sign * numbers.largest(case)).expand(m, k).to(getattr(torch, case.dtype), copy=True)
    b = numbers.normals((k, n), case, source).float() / (8 * max(k, 1))
    b[:, :1] = 1.0
    return a.contiguous(), b.to(a.dtype)


def one_infinity_per_operand(
    shapes: tuple[Shape, ...], case: Case, source: torch.Generator
) -> tuple[torch.Tensor, ...]:
    """One infinite element in A and one in B, each multiplied by a zero of the other: NaN.

    In float16 only by zeros: a kernel that skips rows and columns of zeros loses the NaN.
    """
    (m, k), (_, n) = shapes
    a, b = (numbers.normals(shape, case, source) for shape in shapes)
    in_a, in_b = numbers.index_below(k, source), numbers.index_below(k, source)
    numbers.put(b, 0.0, (in_a, numbers.index_below(n, source)))
    numbers.put(a, 0.0, (numbers.index_below(m, source), in_b))
    if case.dtype == "float16":
        b[in_a : in_a + 1], a[:, in_b : in_b + 1] = 0.0, 0.0
    numbers.put(a, -math.inf, (numbers.index_below(m, source), in_a))
    numbers.put(b, math.inf, (in_b, numbers.index_below(n, source)))
    return a, b


def halves_that_cancel(shapes: tuple[Shape, ...], case: Case, source: torch.Generator) -> tuple[torch.Tensor, ...]:
    """The second half of K repeats the first with opposite sign in B: the sum is the middle term, or zero."""
    a, b = (numbers.normals(shape, case, source) for shape in shapes)
    half = a.shape[1] // 2
    a[:, a.shape[1] - half :] = a[:, :half]
    b[b.shape[0] - half :] = (-b[:half].double()).to(b.dtype)
    return a, b


def exact_sums(shapes: tuple[Shape, ...], case: Case, source: torch.Generator) -> tuple[torch.Tensor, ...]:
    """Numbers from 1 to 1.75 in steps of 1/4: products are multiples of 1/16, and the sum of 128 is below 2^13 / 16.

    For `promoted` all are positive, so that sums of more than 128 products lose bits. For `fast`, which may sum all
    products in one chain, the signs are random, and the steps are 1/2 for long sums.
    """
    fast = case.precision == "fast"
    steps = 2 if fast and shapes[0][1] > 2048 else 4
    a, b = (torch.randint(steps, 2 * steps, shape, generator=source, device=source.device) for shape in shapes)
    if fast:
        a *= 2 * torch.randint(0, 2, a.shape, generator=source, device=source.device) - 1
    return tuple((each / steps).to(getattr(torch, case.dtype)) for each in (a, b))


def grain(x: torch.Tensor) -> float:
    """Return the largest power of two that divides all finite float8 elements; 0 if all are 0."""
    found = torch.bincount(x.view(torch.uint8).reshape(-1), minlength=256).cpu() > 0
    values = torch.arange(256, dtype=torch.uint8).view(x.dtype).double()[found]
    smallest = 2 * half_smallest(FLOAT8)
    whole = math.gcd(*(int(value / smallest) for value in values.tolist() if math.isfinite(value)))
    return (whole & -whole) * smallest


def add_float8(families: dict[str, Family]) -> dict[str, Family]:
    """Add float8 to the dtypes of the families that it can represent. It has no infinity."""
    without = ("infinity", "huge", "exact_sums", "range")
    return {
        name: family if name in without else replace(family, dtypes=(*family.dtypes, FLOAT8))
        for name, family in families.items()
    }


class Matmul(Operation):
    rank = 41
    group = "products"
    name = "matmul"
    formula = "C[i, j] = sum over k of A[i, k] B[k, j]"
    dims = ("M", "N", "K")
    is_square = True
    options = (Option("layout", ("nn", "tn", "nt", "tt"), "which operands are stored transposed (t)"),)
    sweep = tuple((n, n, n) for n in (32, 64, 128, 256, 512, 1024, 2048, 4096))
    telling = (TellingCase("many_rows", (1040, 16, 48)),)
    large = (
        TellingCase("large", (40, 72, 16_392)),
        TellingCase("many_rows", (70_001, 9, 8)),
    )
    ragged = ((1, 1, 1), (1, 129, 65), (65, 1, 127), (37, 41, 1), (64, 64, 64), (127, 65, 33), (129, 257, 100))
    dtypes_beyond = (FLOAT8, DOUBLE)
    weights = (1,)
    families: ClassVar = add_float8(
        {
            "normal": family.normal(),
            "sizes": family.sizes(*ragged),
            "long_thin": family.long_thin((1, 1031, 3), (1031, 2, 1), (3, 2, 1031), (2, 3, 1024)),
            "empty": family.empty((3, 4, 0), (0, 4, 3), (3, 0, 4), (0, 0, 0)),
            "transposed": family.transposed(*options, (33, 65, 34), (64, 32, 128)),
            "strided": family.strided_views((1, 1, 1), (33, 65, 34)),
            "offset": family.offset((33, 65, 34), (64, 32, 128)),
            "misaligned_rows": family.misaligned_rows((33, 64, 64)),
            "broadcast": family.broadcast((33, 65, 34), (64, 32, 128)),
            "subnormal": family.subnormal(
                (33, 65, 34), values=numbers.per_operand(numbers.subnormals, numbers.small_integers)
            ),
            "largest": family.large((33, 65, 34), values=rows_of_extremes),
            "range": family.spread((33, 65, 34), 20, -20),
            "signed_zero": family.signed_zero((33, 65, 34)),
            "infinity": family.infinity((33, 65, 34), values=one_infinity_per_operand),
            "nan": family.nan((33, 65, 34)),
            "cancellation": family.cancellation((33, 65, 34), (33, 65, 257), values=halves_that_cancel),
            "exact_sums": Family(
                "float8 numbers whose sums are exact up to 128 products",
                exact_sums,
                shapes=((33, 65, 34), (48, 32, 4096)),
                dtypes=(FLOAT8,),
            ),
            "huge": family.huge((2**16 + 1, 2**15 + 1, 16), (2**27 + 1, 3, 17)),
        }
    )

    def precisions(self, dtype: str) -> tuple[str, ...]:
        return {"float32": ("ieee", "tf32"), FLOAT8: ("promoted", "fast")}.get(dtype, ("ieee",))

    def default_option(self, option: Option, dtype: str) -> Value:
        """Return `nt` for float8: its tensor-core products need both operands contiguous along K."""
        return "nt" if dtype == FLOAT8 else super().default_option(option, dtype)

    def output_dtype(self, case: Case) -> str:
        return "bfloat16" if case.dtype == FLOAT8 else case.dtype

    def stored_transposed(self, case: Case) -> tuple[bool, ...]:
        return tuple(letter == "t" for letter in case.option("layout", "nn"))

    def make_inputs(self, case: Case, seed: int, device: torch.device) -> tuple[torch.Tensor, ...]:
        """Draw A and B; for float8 also their float32 scales, which are no powers of two.

        With normal numbers the scales make results as large as with standard normal numbers; in other families results
        exceed the range of float16.
        """
        operands = super().make_inputs(case, seed, device)
        if case.dtype != FLOAT8:
            return operands
        power = -7 if case.inputs == "normal" else 12
        return *operands, *scales(2, power, seed, device)

    def second_case(self, case: Case) -> Case:
        """Return the family of exact sums for float8: the bound for normal numbers hides smaller mistakes."""
        return replace(case, inputs="exact_sums") if case.dtype == FLOAT8 and case.inputs == "normal" else case

    def default_cases(self, device_type: str) -> list[Case]:
        """Cases on a CPU have only `ieee`: tf32 is a precision of tensor cores, which `--precision tf32` asks for."""
        if device_type != "cuda":
            return [self.case((256, 256, 256), dtype) for dtype in DTYPES]
        kinds = [(dtype, precision) for dtype in DTYPES for precision in self.precisions(dtype)]
        return [self.case((size,) * 3, dtype, precision) for size in (1024, 2048, 4096) for dtype, precision in kinds]

    def operands(self, case: Case) -> tuple[Shape, ...]:
        m, n, k = case.shape
        return ((m, k), (k, n))

    def arguments(self, case: Case) -> dict[str, Any]:
        return {"precision": case.precision}

    def truth(self, inputs: tuple[torch.Tensor, ...], case: Case) -> Iterator[Truth]:
        m, n, k = case.shape
        b = inputs[1].double()
        b_squared = b.square()
        scale = math.prod(float(each) for each in inputs[2:])
        step = scale * grain(inputs[0]) * grain(inputs[1]) if case.dtype == FLOAT8 else 0.0
        for rows, columns in blocks.blocks((m, n)):
            a = inputs[0][rows].double()
            value = a @ b[:, columns]
            spread_squared = a.square() @ b_squared[:, columns]
            noise = None
            if case.dtype == FLOAT8:
                value, spread_squared = value.mul_(scale), spread_squared.mul_(scale**2)
                bound = float8_limit(value, spread_squared, step, k, m * n, self.output_dtype(case), case.precision)
            else:
                kind = case.dtype, case.precision, repeats_of_products(a, b[:, columns])
                bound = matmul_limit(value, spread_squared, k, m * n, *kind)
                noise = product_noise(value, spread_squared, (m, n, k), *kind)
            del a, spread_squared
            yield Truth((rows, columns), value, bound, noise)
            del value, bound

    def output_shape(self, case: Case) -> Shape:
        return (case["M"], case["N"])

    def flops(self, case: Case) -> int:
        return 2 * case["M"] * case["N"] * case["K"]

    def workspace_bytes(self, case: Case) -> int:
        m, n, k = case.shape
        rows = min(m, blocks.rows_per_block(n))
        return 8 * (2 * k * n + 2 * rows * k) + blocks.block_bytes((m, n), arrays=16 if case.dtype == FLOAT8 else 10)


OP = Matmul()
