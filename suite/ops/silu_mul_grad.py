"""silu_mul_grad: the gradients of silu_mul's a and b, from the gradient of its result."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import ClassVar

import torch

from suite.numerics.bounds import limit
from suite.numerics.formats import DTYPES, half_smallest, unit_roundoff
from suite.ops.silu_mul import ODD, Gate, SiluMul, gate, one_sided, product_error, saturated
from suite.problem import family, numbers, outputs
from suite.problem.blocks import block_bytes, blocks
from suite.problem.case import Case
from suite.problem.family import Family
from suite.problem.option import Option
from suite.problem.shape import Shape
from suite.problem.truth import Truth


def slope(a: torch.Tensor, of: Gate) -> torch.Tensor:
    """Return the derivative of act(a) = a s: s + a w' s (1 - s)."""
    return of.s + a * of.slope * of.s * (1.0 - of.s)


def slope_error(a: torch.Tensor, of: Gate) -> torch.Tensor:
    """Return the largest error of the derivative in float32.

    An error of s changes it by 1 + a w' (1 - 2 s) times that. Its second term has the roundings of w', of 1 - s and of
    three products; the sum is rounded.
    """
    u = unit_roundoff("float32")
    steep = (a * of.slope).abs()
    terms = of.s + steep * of.s * (1.0 - of.s)
    return of.error * (1.0 + steep * (1.0 - 2.0 * of.s).abs()) + terms * (7.0 * u)


class SiluMulGrad(SiluMul):
    rank = 32
    group = "elementwise"
    name = "silu_mul_grad"
    formula = "dA = dY * B * act'(A), dB = dY * act(A), the gradients of the sum of dY * act(A) * B"
    dims = ("M", "N")
    is_square = True
    outputs = ("da", "db")
    options: ClassVar[tuple[Option, ...]] = (
        Option("activation", ("silu", "gelu_tanh"), "silu(a), or the tanh approximation of gelu(a)"),
    )
    families: ClassVar = {
        "normal": family.normal(),
        "sizes": family.sizes(*SiluMul.ragged),
        "empty": family.empty((0, 5), (5, 0)),
        "strided": family.strided_views(ODD),
        "misaligned_rows": family.misaligned_rows((9, 128)),
        "saturated": Family(
            "gates of 0 and of 1, and exponentials that overflow",
            numbers.per_operand(saturated, numbers.normals),
            shapes=(ODD,),
        ),
        "nan": family.nan(ODD),
        "range": family.spread(ODD, 3, 60, -60),
        "large_gate": family.spread(ODD, 20),
    }

    def default_cases(self, device_type: str) -> list[Case]:
        """Cases on a GPU: the feed-forward part of Llama 3's 8B model for 8192 tokens; GeGLU; other types."""
        if device_type != "cuda":
            return [self.case((50, 264), dtype) for dtype in DTYPES]
        shape = (8192, 14336)
        cases = [self.case(shape, "bfloat16"), self.case(shape, "bfloat16", activation="gelu_tanh")]
        return [*cases, self.case(shape, "float16"), self.case(shape, "float32")]

    def operands(self, case: Case) -> tuple[Shape, ...]:
        return (case.shape,) * 3

    def output_shapes(self, case: Case) -> tuple[Shape, ...]:
        return (case.shape, case.shape)

    def output_shape(self, case: Case) -> Shape:
        return outputs.flat_shape(self.output_shapes(case))

    def truth(self, inputs: tuple[torch.Tensor, ...], case: Case) -> Iterator[Truth]:
        """Yield blocks of da and of db in turn; a block is contiguous in the joined results."""
        activation, count, columns = self.option_values(case)["activation"], math.prod(case.shape), case["N"]
        for index in blocks(case.shape):
            a, b, dy = (each[index].double() for each in inputs)
            start = index[0].start * columns + index[1].start
            of = gate(a, activation)
            value = dy * b * slope(a, of)
            error = (dy * b).abs() * slope_error(a, of) + value.abs() * (3.0 * unit_roundoff("float32"))
            error += half_smallest("float32") * (dy.abs() + b.abs() + 1.0)
            yield self._piece(start, value, error, case)
            del b
            value = a * of.s * dy
            error = product_error(a, dy, of, value)
            del a, dy, of
            yield self._piece(count + start, value, error, case)

    def _piece(self, start: int, value: torch.Tensor, error: torch.Tensor, case: Case) -> Truth:
        value, error = value.reshape(-1), error.reshape(-1)
        noise = one_sided(error, self.output_shape(case)[0])
        return Truth((slice(start, start + value.numel()),), value, limit(error, value, case.dtype), noise)

    def flops(self, case: Case) -> int:
        """Count four for the sigmoid, five for its derivative and four products; for gelu's polynomials seven more."""
        return (13 if case.option("activation", "silu") == "silu" else 20) * case["M"] * case["N"]

    def workspace_bytes(self, case: Case) -> int:
        return block_bytes(case.shape, 14)


OP = SiluMulGrad()
