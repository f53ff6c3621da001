"""linear_sigmoid_grad: the gradients of a linear layer with a sigmoid from the gradient of its output, in one step."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch

from suite.numerics.bounds import EXP_ULPS, deviations, limit, sum_variance
from suite.numerics.formats import DOUBLE, DTYPES, half_smallest, is_narrow, unit_roundoff, working
from suite.numerics.noise import Noise, sample
from suite.numerics.repeats import distinct, repeats, repeats_of_products
from suite.ops.linear_sigmoid import (
    LAYER,
    ODD,
    LinearSigmoid,
    layer,
    layer_family,
    logits,
    one_nan_in_turn,
)
from suite.ops.matmul import product_error, product_kind
from suite.problem import family, outputs
from suite.problem.blocks import rows_per_block
from suite.problem.case import Case
from suite.problem.family import Family
from suite.problem.shape import Shape
from suite.problem.telling_case import TellingCase
from suite.problem.truth import Truth


@dataclass
class Derivative:
    """The derivative dz = dy y (1 - y) of some rows, its largest systematic error and its variance; float64."""

    dz: torch.Tensor
    shift: torch.Tensor
    variance: torch.Tensor


def derivative(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, dy: torch.Tensor, case: Case) -> Derivative:
    """Compute the derivative from float64 operands, with its errors.

    1. An error e of z changes y by y (1 - y) e. So does its systematic error. Where y (1 - y) is 0, z may be infinite.
    2. y has the error of the sigmoid in float32. In 16 bits it may also be rounded, since libraries keep it for the
       backward pass. The rounding is at most u y, even for y near 1, where 1 - y then loses all its digits.
    3. An error e of y changes dz by dy (1 - 2 y) e. dz is rounded to the type of the inputs, as a factor of products;
       `product_error` has the relative rounding to tf32, but not that below the normal range.
    """
    z_errors = logits(x, weight, bias, case)
    y = torch.sigmoid(z_errors.z)
    slope, change = y * (1.0 - y), (dy * (1.0 - 2.0 * y)).abs()
    dz = dy * slope
    fine, u = unit_roundoff(working(case.dtype)), unit_roundoff(case.dtype)
    factor = product_kind(case.dtype, case.precision)
    sigmoid_error = (y * (2.0 * EXP_ULPS * fine + fine + u)).square()
    through_z = slope.square() * (z_errors.variance + z_errors.rounding.square() / 3.0)
    variance = through_z.masked_fill_(slope == 0.0, 0.0) + sigmoid_error / 3.0
    rounding = (dz.abs() * (u + 3.0 * fine)).clamp(min=half_smallest(factor)) * (dz != 0)
    shift = (change * slope * z_errors.shift).masked_fill_(slope == 0.0, 0.0)
    return Derivative(dz, shift, variance * change.square() + rounding.square() / 3.0)


@dataclass
class Sum:
    """A sum of terms with dz, and the terms of its bound."""

    value: torch.Tensor
    shift: torch.Tensor
    variance: torch.Tensor
    squares: torch.Tensor
    """Sum of the squares of the terms."""
    repeated: torch.Tensor | None = None
    """How many terms are equal; None if all differ. It enters `variance`."""

    def __iadd__(self, other: Sum) -> Sum:
        for name in ("value", "shift", "variance", "squares"):
            getattr(self, name).add_(getattr(other, name))
        if self.repeated is None or other.repeated is None:
            self.repeated = other.repeated if self.repeated is None else self.repeated
        else:
            self.repeated = self.repeated + other.repeated
        return self

    def errors(self, terms: int, case: Case, *, products: bool) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the systematic error and the variance of a sum of `terms` terms."""
        if not products:
            return self.shift, self.variance + sum_variance(
                self.value, self.squares, terms, None, self.repeated, case.dtype
            )
        shift, variance = product_error(self.value, self.squares, terms, case.dtype, case.precision, self.repeated)
        return self.shift + shift, self.variance + variance

    def limit(self, terms: int, count: int, case: Case, *, products: bool = True) -> torch.Tensor:
        """Return the bound of a sum of `terms` terms, one of `count` results."""
        shift, variance = self.errors(terms, case, products=products)
        return limit(shift + variance.sqrt() * deviations(count), self.value, case.dtype)

    def noise(self, terms: int, independent: int, case: Case, *, products: bool = True) -> Noise | None:
        """Return the noise of all results in 16 bits. In float32 the errors of the exponential may have one sign."""
        if not is_narrow(case.dtype):
            return None
        at = sample((self.value.numel(),), self.value.device)
        shift, variance = self.errors(terms, case, products=products)
        return Noise(shift.reshape(-1)[at], variance.reshape(-1)[at], independent)


def multiply(gradient: Derivative, b: torch.Tensor, *, transposed: bool = False) -> Sum:
    """Return dz b, or dz^T b."""
    squares = b.square()
    factors = (gradient.dz, gradient.shift, gradient.variance, gradient.dz.square())
    dz, shift, variance, dz_squared = (each.T if transposed else each for each in factors)
    equal = repeats_of_products(dz, b)
    variance = variance @ squares * (1.0 if equal is None else equal)
    return Sum(dz @ b, shift @ b.abs(), variance, dz_squared @ squares, equal)


def sum_over_rows(gradient: Derivative) -> Sum:
    equal = repeats(gradient.dz.T).view(-1)
    variance = gradient.variance.sum(0) * equal
    return Sum(gradient.dz.sum(0), gradient.shift.sum(0), variance, gradient.dz.square().sum(0), equal)


class LinearSigmoidGrad(LinearSigmoid):
    rank = 43
    group = "products"
    name = "linear_sigmoid_grad"
    formula = (
        "dX = dZ W, dW = dZ^T X, db[j] = sum over i of dZ[i, j], where dZ = dY * Y * (1 - Y), Y = sigma(X W^T + b)"
    )
    dtypes_beyond = (DOUBLE,)
    dims = ("M", "N", "K")
    is_square = True
    outputs = ("dx", "dweight", "dbias")
    sweep = tuple((n, n, n) for n in (64, 256, 1024, 2048, 4096, 8192))
    telling: ClassVar[tuple[TellingCase, ...]] = (TellingCase("many_rows", (1040, 16, 67)),)
    large: ClassVar[tuple[TellingCase, ...]] = (
        TellingCase("large", (40, 72, 4104)),
        TellingCase("many_rows", (70_001, 9, 8)),
    )
    ragged: ClassVar[tuple[Shape, ...]] = ((1, 8, 1), (70, 40, 33))
    weights = (1, 2)
    families: ClassVar = {
        "normal": Family("normal numbers, weights over sqrt(K); the operation's default sizes", LAYER),
        "sizes": layer_family(family.sizes(*ragged)),
        "empty": layer_family(family.empty((0, 4, 3), (3, 0, 4))),
        "strided": layer_family(family.strided_views(ODD)),
        "range": family.spread(ODD, 20, -20, 0, 20, values=LAYER),
        "saturated": Family("logits of either sign up to 60: hardly any gradient", layer(15.0), shapes=(ODD,)),
        "nan": family.nan(ODD, values=one_nan_in_turn),
    }

    def default_cases(self, device_type: str) -> list[Case]:
        """Cases on a GPU: squares, a layer of a transformer, and the other types."""
        if device_type != "cuda":
            return [self.case((50, 72, 40), dtype) for dtype in DTYPES]
        shapes = ((4096, 4096, 4096), (8192, 8192, 8192), (4096, 14336, 4096))
        cases = [self.case(shape, "bfloat16") for shape in shapes]
        return [*cases, self.case(shapes[0], "float16"), self.case((2048, 2048, 2048), "float32", "tf32")]

    def operands(self, case: Case) -> tuple[Shape, ...]:
        return (*super().operands(case), (case["M"], case["N"]))

    def output_shapes(self, case: Case) -> tuple[Shape, ...]:
        return super().operands(case)

    def output_shape(self, case: Case) -> Shape:
        return outputs.flat_shape(self.output_shapes(case))

    def truth(self, inputs: tuple[torch.Tensor, ...], case: Case) -> Iterator[Truth]:
        """Yield dx in blocks of rows of x, then dweight and dbias, which are sums over the blocks.

        The errors of dz are independent unless it is equal, and a product has as many of them as its other factor has
        distinct rows.
        """
        m, n, k = case.shape
        count = self.output_shape(case)[0]
        starts = outputs.starts(self.output_shapes(case))

        def piece(begin: int, total: Sum, terms: int, independent: int, *, products: bool = True) -> Truth:
            bound = total.limit(terms, count, case, products=products)
            noise = total.noise(terms, min(independent, total.value.numel()), case, products=products)
            place = (slice(begin, begin + bound.numel()),)
            return Truth(place, total.value.reshape(-1), bound.reshape(-1), noise)

        weight, bias = (each.double() for each in inputs[1:3])
        dweight, dbias = (
            Sum(*(torch.zeros(shape, dtype=torch.float64, device=weight.device) for _ in range(4)))
            for shape in ((n, k), (n,))
        )
        together, errors = rows_per_block(max(n, k)), m * n
        for start in range(0, m, together):
            x, dy = (each[start : start + together].double() for each in (inputs[0], inputs[3]))
            gradient = derivative(x, weight, bias, dy, case)
            errors = min(errors, round(m * n / float(repeats(gradient.dz.reshape(1, -1), m * n))))
            dx = multiply(gradient, weight)
            yield piece(starts[0] + start * k, dx, n, min(errors, m * distinct(weight)))
            del dx, dy
            dweight += multiply(gradient, x, transposed=True)
            dbias += sum_over_rows(gradient)
        yield piece(starts[1], dweight, m, min(errors, n * distinct(inputs[0])))
        yield piece(starts[2], dbias, m, errors, products=False)

    def flops(self, case: Case) -> int:
        """Count three products; per logit the bias, four for the sigmoid, three for its derivative, one for dbias."""
        return case["M"] * case["N"] * (6 * case["K"] + 9)

    def workspace_bytes(self, case: Case) -> int:
        """Count five float64 arrays of the size of each operand, and fifteen of a block of rows."""
        m, n, k = case.shape
        rows = min(m, rows_per_block(max(n, k)))
        return 8 * (10 * n * k + rows * (15 * n + 8 * k))


OP = LinearSigmoidGrad()
