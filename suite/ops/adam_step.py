"""adam_step: a step of the optimizer Adam, or AdamW: new parameters, and new moments of their gradient in float32."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch

from suite.numerics.bounds import limit
from suite.numerics.formats import DTYPES, half_smallest, unit_roundoff
from suite.problem import blocks, family, numbers, outputs, specials
from suite.problem.case import Case
from suite.problem.family import Family
from suite.problem.operation import Operation
from suite.problem.option import Option
from suite.problem.shape import Shape
from suite.problem.truth import Truth

SETTINGS = {"step": 10, "lr": 0.01, "beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "weight_decay": 0.1}
"""The usual settings of PyTorch and JAX, but for a rate and a decay that show in 16 bits. Step 10 has a bias."""
SIZE = 2.0**-6
"""Standard deviation of parameters and gradients: the step is of the size of the parameters."""


def moments(*, first: float = 0.3, second: float = 0.01) -> numbers.Values:
    """Draw parameters and gradients, and the moments that such gradients leave after some steps, in float32.

    first, second: sizes of the moments over those of the gradient and of its square.
    """

    def values(shapes: tuple[Shape, ...], case: Case, source: torch.Generator) -> tuple[torch.Tensor, ...]:
        wide = replace(case, dtype="float32")
        param, grad, m, v = (
            numbers.normals(shape, each, source) * SIZE
            for shape, each in zip(shapes, (case, case, wide, wide), strict=True)
        )
        return param, grad, m * first, v.square() * second

    return values


def with_moments(families: dict[str, Family]) -> dict[str, Family]:
    """Draw moments, instead of normal numbers, in families that differ only in the placement."""
    return {
        name: replace(each, values=moments()) if each.values is family.NORMALS else each
        for name, each in families.items()
    }


def resting(shapes: tuple[Shape, ...], case: Case, source: torch.Generator) -> tuple[torch.Tensor, ...]:
    """Parameters whose gradient and moments are 0."""
    param, *others = moments()(shapes, case, source)
    return (param, *(each * 0.0 for each in others))


@dataclass
class Uncertain:
    """Numbers in float64 and the largest errors of their float32 values."""

    value: torch.Tensor
    error: torch.Tensor

    def rounded(self) -> Uncertain:
        """The same numbers after a rounding to float32."""
        return Uncertain(self.value, self.error + self.value.abs() * U + SMALLEST)


U, SMALLEST = unit_roundoff("float32"), half_smallest("float32")


def decayed(param: torch.Tensor, grad: torch.Tensor, at: dict[str, Any]) -> Uncertain:
    """Return the gradient with weight_decay * param, unless the decay is decoupled from it."""
    if at["decoupled"] or not at["weight_decay"]:
        return Uncertain(grad, torch.zeros_like(grad))
    term = at["weight_decay"] * param
    return Uncertain(grad + term, term.abs() * (2.0 * U) + SMALLEST).rounded()


def new_moments(grad: Uncertain, m: torch.Tensor, v: torch.Tensor, at: dict[str, Any]) -> tuple[Uncertain, Uncertain]:
    """Return beta1 m + (1 - beta1) g and beta2 v + (1 - beta2) g^2, before they are rounded.

    A factor, a product and, in m + (1 - beta1)(g - m), a difference have an error of u each; a square has another.
    """
    rest1, rest2, g = 1.0 - at["beta1"], 1.0 - at["beta2"], grad.value
    kept, added = at["beta1"] * m, rest1 * g
    error = (kept.abs() + added.abs() + rest1 * m.abs()) * (3.0 * U) + rest1 * grad.error + 3.0 * SMALLEST
    first = Uncertain(kept + added, error)
    kept, added = at["beta2"] * v, rest2 * g.square()
    error = (2.0 * kept + 3.0 * added) * U + rest2 * grad.error * (2.0 * g.abs() + grad.error) + 4.0 * SMALLEST
    return first, Uncertain(kept + added, error)


def new_parameters(param: torch.Tensor, first: Uncertain, second: Uncertain, at: dict[str, Any]) -> Uncertain:
    """Return p - lr m' / (sqrt(v') + eps), where m' and v' are the moments over 1 - beta^step; decoupled: p decays.

    1. An error e of v changes its root by at most e / (sqrt(v) + sqrt(v - e)), and by at most sqrt(e).
    2. The denominator has 2u from an approximate root, and u each from the correction, its product, eps and the sum.
    3. The quotient has the errors of m and of the denominator, and u; four more factors and products follow.
    4. A decoupled decay has 3u: factor, product and difference.
    """
    m, v = first.rounded(), second.rounded()
    correction1, correction2 = 1.0 - at["beta1"] ** at["step"], 1.0 - at["beta2"] ** at["step"]
    root = v.value.sqrt()
    by_v = torch.minimum(v.error / (root + (v.value - v.error).clamp_(min=0.0).sqrt_()), v.error.sqrt())
    denominator = root / correction2**0.5 + at["eps"]
    relative = (by_v / correction2**0.5 / denominator).masked_fill_(v.value.isinf(), 0.0) + 6.0 * U
    quotient = m.value / denominator
    rate = at["lr"] / correction1
    error = rate * (m.error / denominator + quotient.abs() * (relative + relative.square() + 5.0 * U))
    kept = param
    if at["decoupled"] and at["weight_decay"]:
        kept = param * (1.0 - at["lr"] * at["weight_decay"])
        error = error + param.abs() * (3.0 * U)
    return Uncertain(kept - rate * quotient, error + 2.0 * SMALLEST)


class AdamStep(Operation):
    rank = 62
    group = "elementwise"
    name = "adam_step"
    formula = "m = b1 m + (1 - b1) g; v = b2 v + (1 - b2) g^2; p = p - lr m / (1 - b1^t) / (sqrt(v / (1 - b2^t)) + eps)"
    dims = ("N",)
    is_square = True
    outputs = ("param", "m", "v")
    options = (
        Option(
            "adamw",
            (False, True),
            "weight decay shrinks the parameters (AdamW), instead of being added to the gradient (Adam)",
            every=True,
        ),
    )
    sweep = tuple((2**k,) for k in range(12, 29, 4))
    ragged = ((1,), (1031,), (4097,))
    telling_left_out = (
        "infinity@2",
    )  # with an infinite m, m + (1 - beta1)(g - m) is NaN and beta1 m + (1 - beta1) g infinite
    families: ClassVar = with_moments(
        {
            "normal": Family("random normal numbers, moments of their size; the operation's default sizes", moments()),
            "sizes": Family("sizes of one, primes, one beyond a block", moments(), shapes=ragged),
            "empty": Family("no parameters: an empty result", moments(), shapes=((0,),)),
            "strided": family.strided_views((1025,)),
            "offset": family.offset((1025,)),
            "broadcast": family.broadcast((1025,)),
            "first_step": Family(
                "moments of 0 at step 1: the step is lr in the direction of the gradient",
                moments(first=0.0, second=0.0),
                shapes=((1025,),),
                arguments={"step": 1},
            ),
            "late_step": Family(
                "step 100000, where moments have no bias", moments(), shapes=((1025,),), arguments={"step": 100_000}
            ),
            "eps": Family("eps of the size of the root", moments(), shapes=((1025,),), arguments={"eps": 2.0**-6}),
            "betas": Family(
                "beta1=0.5, beta2=0.75",
                moments(),
                shapes=((1025,),),
                arguments={"beta1": 0.5, "beta2": 0.75, "step": 2},
            ),
            "rate": Family("lr=0.125 instead of 0.01", moments(), shapes=((1025,),), arguments={"lr": 0.125}),
            "no_decay": Family("no weight decay", moments(), shapes=((1025,),), arguments={"weight_decay": 0.0}),
            "resting": Family("gradients and moments of 0", resting, shapes=((1025,),)),
            "subnormal": Family(
                "gradients below the normal range", specials.values("subnormal@1", moments()), shapes=((1025,),)
            ),
            "range": family.spread((1025,), 0, 20, 20, 40, values=moments()),
            "nan": Family("NaN in one place of the gradient", specials.values("nan@1", moments()), shapes=((1025,),)),
        }
    )

    def family(self, inputs: str) -> Family:
        """Return the family, with second moments that are not negative."""
        found = super().family(inputs)

        def values(shapes: tuple[Shape, ...], case: Case, source: torch.Generator) -> tuple[torch.Tensor, ...]:
            *others, v = found.values(shapes, case, source)
            return (*others, v.abs())

        return replace(found, values=values)

    def default_cases(self, device_type: str) -> list[Case]:
        """Cases on a GPU: the parameters of a large layer, in every type; then Adam, and a small layer."""
        if device_type != "cuda":
            return [self.case((5000,), dtype) for dtype in DTYPES]
        cases = [self.case((2**24,), dtype, adamw=True) for dtype in DTYPES]
        return [*cases, self.case((2**24,), "float32"), self.case((2**20,), "float32", adamw=True)]

    def operands(self, case: Case) -> tuple[Shape, ...]:
        return (case.shape,) * 4

    def operand_dtypes(self, case: Case) -> tuple[str, ...]:
        return (case.dtype, case.dtype, "float32", "float32")

    def arguments(self, case: Case) -> dict[str, Any]:
        settings = {**SETTINGS, **self.family(case.inputs).arguments}
        return {**settings, "decoupled": case.option("adamw", False)}

    def output_shapes(self, case: Case) -> tuple[Shape, ...]:
        return (case.shape,) * 3

    def output_dtypes(self, case: Case) -> tuple[str, ...]:
        return (case.dtype, "float32", "float32")

    def output_shape(self, case: Case) -> Shape:
        return outputs.flat_shape(self.output_shapes(case))

    def output_dtype(self, case: Case) -> str:
        return outputs.joined_dtype(self.output_dtypes(case))

    def truth(self, inputs: tuple[torch.Tensor, ...], case: Case) -> Iterator[Truth]:
        """Yield pieces of the three results in turn."""
        at, (n,) = self.arguments(case), case.shape
        for (part,) in blocks.blocks((n,)) if n else ():
            param, grad, m, v = (each[part].double() for each in inputs)
            first, second = new_moments(decayed(param, grad, at), m, v, at)
            result = new_parameters(param, first, second, at)
            del param, grad, m, v
            if case.dtype != "float32":
                result = result.rounded()
            for begin, found, dtype in zip(
                (0, n, 2 * n), (result, first, second), self.output_dtypes(case), strict=True
            ):
                index = (slice(begin + part.start, begin + part.stop),)
                yield Truth(index, found.value, limit(found.error, found.value, dtype), dtype=dtype)

    def flops(self, case: Case) -> int:
        """Count three operations for m, four for v, six for the step, and two for the decay (one if decoupled)."""
        return case["N"] * (13 + (1 if case.option("adamw", False) else 2))

    def workspace_bytes(self, case: Case) -> int:
        """Count the float64 arrays of one block: the inputs, values and errors, and what judging takes."""
        return blocks.block_bytes(case.shape, arrays=20)


OP = AdamStep()
