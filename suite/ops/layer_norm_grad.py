"""layer_norm_grad: the gradients of layer_norm's matrix, weight and bias, from the gradient of its result."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import torch

from suite.numerics.bounds import deviations
from suite.numerics.formats import unit_roundoff
from suite.ops.layer_norm import EPS, FACTORS, OTHER_EPS, row_variances, shifted, small
from suite.ops.rms_norm_grad import ODD, Normed, RmsNormGrad
from suite.problem import family, numbers
from suite.problem.case import Case
from suite.problem.family import Family
from suite.problem.shape import Shape


def infinite_gradient(shapes: tuple[Shape, ...], case: Case, source: torch.Generator) -> tuple[torch.Tensor, ...]:
    """Normal numbers with two infinities in a row of dy whose products with the weight have opposite signs.

    The mean of dy times the weight is NaN in any order, and so is the row of dx; dweight and dbias are infinite.
    """
    x, weight, dy = numbers.per_operand(numbers.normals)(shapes, case, source)
    m, n = case.shape
    row, column = numbers.index_below(m, source), numbers.index_below(n, source)
    for sign, at in ((1.0, column), (-1.0, (column + 1) % max(n, 1))):
        numbers.put(dy, sign * math.inf * (-1.0 if n and weight[at] < 0.0 else 1.0), (row, at))
    return x, weight, dy


class LayerNormGrad(RmsNormGrad):
    rank = 40
    group = "rows"
    name = "layer_norm_grad"
    formula = (
        "dX = s (G - mean(G) - Xhat mean(G Xhat)), dW = sum over rows of dY Xhat, db = sum over rows of dY, "
        "where s = 1 / sqrt(variance + eps), Xhat = (X - mean) s, G = dY W"
    )
    dims = ("M", "N")
    is_square = True
    outputs = ("dx", "dweight", "dbias")
    centered = True
    # With an infinite weight or dy the sums of a row are infinite, and their difference is NaN or not, by the order of
    # terms.
    telling_left_out: tuple[str, ...] = ("subnormal@", "infinity@1", "infinity@2")
    families: ClassVar = {
        "normal": family.normal(),
        "sizes": family.sizes(*RmsNormGrad.ragged),
        "empty": family.empty((0, 5), (5, 0)),
        "strided": family.strided_views(ODD),
        "offset": family.offset(ODD),
        "nan": family.nan(ODD, values=numbers.per_operand(numbers.one_nan, numbers.normals)),
        "infinity": family.infinity(ODD, values=infinite_gradient),
        "range": family.spread(ODD, 20, -20, 20),
        "small": Family("variances of the size of eps", numbers.per_operand(small, numbers.normals), shapes=(ODD,)),
        "shifted": Family(
            "means of 64 and more: E[x^2] - E[x]^2 cancels",
            numbers.per_operand(shifted, numbers.normals),
            shapes=(ODD,),
        ),
        "eps": Family(f"eps={OTHER_EPS} instead of {EPS}", family.NORMALS, shapes=(ODD,), arguments={"eps": OTHER_EPS}),
    }

    def arguments(self, case: Case) -> dict[str, Any]:
        return {"eps": EPS, **self.family(case.inputs).arguments}

    def output_shapes(self, case: Case) -> tuple[Shape, ...]:
        return (case.shape, (case["N"],), (case["N"],))

    def normed(self, x: torch.Tensor, eps: float, dtype: str) -> Normed:
        """Norm some rows, float64; the errors are those of `layer_norm_limit`.

        A variance by Welford's updates has as terms (x_k - m)^2 with the running mean m: an error e_k of m changes it
        by 2 (x_k - m) e_k / N each, whose signs are independent. The variance of e_k is at most that of the mean.
        """
        mean = x.mean(dim=1, keepdim=True)
        centered = x - mean
        scale = centered.square().mean(dim=1, keepdim=True).add_(eps).rsqrt_()
        mean_variance, squares = row_variances(x, centered, dtype)
        shift = mean.abs() * unit_roundoff("float32")
        moved = (mean_variance.sqrt() * deviations(x.numel()) + shift) * scale
        running = mean_variance * scale.square() / max(x.shape[1], 1)
        variance = squares / 4.0 + running + (moved.square() / 2.0).square()
        return Normed(centered.mul_(scale), scale, variance, FACTORS, mean_variance, shift, mean * scale)

    def flops(self, case: Case) -> int:
        """Count those of rms_norm_grad, and for each element two sums of means, two differences, a sum of dbias."""
        return 16 * case["M"] * case["N"]


OP = LayerNormGrad()
