"""silu_mul: a gated linear unit's product, silu(a) b (SwiGLU) or gelu(a) b (GeGLU), elementwise on (M, N)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from suite.numerics.bounds import EXP_ULPS, flushed, limit
from suite.numerics.formats import DTYPES, half_smallest, unit_roundoff
from suite.numerics.noise import Noise, sample
from suite.problem import family, numbers
from suite.problem.blocks import block_bytes, blocks
from suite.problem.case import Case
from suite.problem.family import Family
from suite.problem.operation import Operation
from suite.problem.option import Option
from suite.problem.shape import Shape
from suite.problem.telling_case import TellingCase
from suite.problem.truth import Truth

LINEAR, CUBIC = math.sqrt(8.0 / math.pi), 0.044715
"""gelu's approximation a (1 + tanh(z)) / 2 with 2 z = LINEAR (a + CUBIC a^3); (1 + tanh(z)) / 2 = sigmoid(2 z)."""
TANH_ULPS = 2.0
"""Largest error of a float32 tanh, in ulps (CUDA C++ Programming Guide: tanhf 2)."""
ODD = (9, 136)
"""Shape of most families: no multiple of a tile."""


@dataclass
class Gate:
    """The factor s of act(a) = a s: the sigmoid of w = a (silu), or of w = LINEAR (a + CUBIC a^3) (gelu); float64."""

    s: torch.Tensor
    error: torch.Tensor
    """The largest error of s in float32."""
    slope: torch.Tensor | float
    """The derivative of w."""


def gate(a: torch.Tensor, activation: str) -> Gate:
    """Compute the gate of a, float64, and its error.

    silu: the error of the sigmoid. Where it is below the normal range it may be 0, since exp(-a) overflows. gelu: tanh
    has TANH_ULPS, 1 + tanh(z) is rounded, and its cancellation for negative a is part of the definition. w has five
    roundings.
    """
    u = unit_roundoff("float32")
    if activation == "silu":
        s = torch.sigmoid(a)
        return Gate(s, s * ((1.0 - s) * (EXP_ULPS * 2.0 * u) + 2.0 * u) + flushed(s, "float32"), 1.0)
    w = LINEAR * (a + CUBIC * a.pow(3))
    s = torch.sigmoid(w)
    moved = s * (1.0 - s) * w.abs().clamp(max=1e3) * (5.0 * u)
    error = (2.0 * s - 1.0).abs() * (TANH_ULPS * u) + s * (2.0 * u) + moved + flushed(s, "float32")
    return Gate(s, error, LINEAR * (1.0 + 3.0 * CUBIC * a.square()))


def product_error(a: torch.Tensor, factor: torch.Tensor, of: Gate, value: torch.Tensor) -> torch.Tensor:
    """Return the largest error of value = a s factor in float32: that of s, two products, which may be subnormal."""
    u, small = unit_roundoff("float32"), half_smallest("float32")
    return (a * factor).abs() * of.error + value.abs() * (3.0 * u) + small * (factor.abs() + a.abs() + 1.0)


def one_sided(error: torch.Tensor, count: int) -> Noise:
    """Return the noise of results whose errors may all have one sign: those of an exponential function are its own."""
    sampled = error[sample(tuple(error.shape), error.device)]
    return Noise(sampled, torch.zeros_like(sampled), count)


def saturated(shape: Shape, case: Case, source: torch.Generator) -> torch.Tensor:
    """Numbers from -75, where the gate is tiny, to 150, where exp(a) overflows."""
    return (225.0 * torch.rand(shape, generator=source, device=source.device) - 75.0).to(numbers.dtype_of(case))


class SiluMul(Operation):
    rank = 31
    group = "elementwise"
    name = "silu_mul"
    formula = "y[i, j] = act(a[i, j]) * b[i, j], where act(a) is a * sigmoid(a), or gelu"
    dims = ("M", "N")
    is_square = True
    options: ClassVar[tuple[Option, ...]] = (
        Option("activation", ("silu", "gelu_tanh"), "silu(a), or the tanh approximation of gelu(a)"),
    )
    sweep = tuple((1024, 2**k) for k in range(6, 19, 2))
    telling_left_out: tuple[str, ...] = ("subnormal@",)
    large: ClassVar[tuple[TellingCase, ...]] = (
        TellingCase("large", (16, 131_072)),
        TellingCase("many_rows", (70_001, 3)),
    )
    ragged: ClassVar[tuple[Shape, ...]] = ((1, 1), (5, 257), (2, 4104))
    families: ClassVar = {
        "normal": family.normal(),
        "sizes": family.sizes(*ragged),
        "empty": family.empty((0, 5), (5, 0)),
        "strided": family.strided_views(ODD),
        "offset": family.offset(ODD),
        "misaligned_rows": family.misaligned_rows((9, 128)),
        "saturated": Family(
            "gates of 0 and of 1, and exponentials that overflow",
            numbers.per_operand(saturated, numbers.normals),
            shapes=(ODD,),
        ),
        "nan": family.nan(ODD),
        "range": family.spread(ODD, 3, 60),
        "large_gate": family.spread(ODD, 20),
        "huge": family.huge((2**16 + 1, 2**15 + 8)),
    }

    def default_cases(self, device_type: str) -> list[Case]:
        """Cases on a GPU: the feed-forward part of Llama 3's 8B and 70B models for 8192 tokens; GeGLU; other types."""
        if device_type != "cuda":
            return [self.case((50, 264), dtype) for dtype in DTYPES]
        shapes = ((8192, 14336), (8192, 28672))
        cases = [self.case(shape, "bfloat16") for shape in shapes]
        cases.append(self.case(shapes[0], "bfloat16", activation="gelu_tanh"))
        return [*cases, self.case(shapes[0], "float16"), self.case(shapes[0], "float32")]

    def operands(self, case: Case) -> tuple[Shape, ...]:
        return (case.shape, case.shape)

    def arguments(self, case: Case) -> dict[str, Any]:
        return self.option_values(case)

    def truth(self, inputs: tuple[torch.Tensor, ...], case: Case) -> Iterator[Truth]:
        activation = self.option_values(case)["activation"]
        for index in blocks(case.shape):
            a, b = (each[index].double() for each in inputs)
            of = gate(a, activation)
            value = a * of.s * b
            error = product_error(a, b, of, value)
            del a, b, of
            yield Truth(index, value, limit(error, value, case.dtype), one_sided(error, math.prod(case.shape)))

    def output_shape(self, case: Case) -> Shape:
        return case.shape

    def flops(self, case: Case) -> int:
        """Count four for the sigmoid and two products; for gelu's polynomial four more."""
        return (6 if case.option("activation", "silu") == "silu" else 10) * case["M"] * case["N"]

    def workspace_bytes(self, case: Case) -> int:
        return block_bytes(case.shape, 11)


OP = SiluMul()
