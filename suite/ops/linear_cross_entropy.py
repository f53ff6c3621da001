"""linear_cross_entropy: the loss of each token after the last layer of a model, and the gradients of the mean loss."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch

from suite.numerics.bounds import EXP_ULPS, deviations, limit
from suite.numerics.formats import DTYPES, half_smallest, is_narrow, unit_roundoff
from suite.ops.cross_entropy import IGNORE_INDEX, OTHER_INDEX, SMALLEST, U, some_targets
from suite.ops.linear_sigmoid import LAYER, Logits, layer, layer_family, logits
from suite.ops.linear_sigmoid_grad import Derivative, Sum, multiply
from suite.ops.softmax import denominator_variance, distances
from suite.problem import family, numbers, outputs, specials
from suite.problem.blocks import rows_per_block
from suite.problem.case import Case
from suite.problem.family import Family
from suite.problem.operation import Operation
from suite.problem.shape import Shape
from suite.problem.telling_case import TellingCase
from suite.problem.truth import Truth

ODD = (33, 65, 34)
"""Shape of most families: no multiple of a tile."""


def with_target(fixed: int | None = None) -> numbers.Values:
    """Draw a layer and one target for all rows: a column, counted from the end if negative; None: ignored."""

    def values(shapes: tuple[Shape, ...], case: Case, source: torch.Generator) -> tuple[torch.Tensor, ...]:
        x, weight = LAYER(shapes[:2], case, source)
        target = IGNORE_INDEX if fixed is None else fixed % max(case["V"], 1)
        return x, weight, torch.full(shapes[2], target, dtype=torch.int64, device=source.device)

    return values


@dataclass
class Rows:
    """Values that the gradients of a row's logits share, (rows, 1) each, float64.

    highest, log_sum: the largest logit m, and log S with S = sum exp(z - m). relative: the error of S in float32.
    shift, variance: the systematic error of log S by the errors of the logits, and its variance. share: of a row in the
    mean, 0 if it is ignored.
    """

    highest: torch.Tensor
    log_sum: torch.Tensor
    relative: torch.Tensor
    shift: torch.Tensor
    variance: torch.Tensor
    share: torch.Tensor

    def __getitem__(self, rows: slice) -> Rows:
        return Rows(*(getattr(self, name)[rows] for name in self.__dataclass_fields__))


def logits_of(x: torch.Tensor, weight: torch.Tensor, case: Case) -> Logits:
    """Return x W^T and its errors. In 16 bits it may be rounded, as between the calls of a library."""
    found = logits(x, weight, torch.zeros(len(weight), dtype=x.dtype, device=x.device), case)
    return replace(found, rounding=found.rounding / 2.0)


def own_variance(z: Logits) -> torch.Tensor:
    return z.variance + z.rounding.square() / 3.0


def times(p: torch.Tensor, error: torch.Tensor) -> torch.Tensor:
    """Return p times an error, which is infinite for an infinite logit; 0 where p is 0."""
    return torch.where(p == 0.0, 0.0, p * error)


def rows_of(z: Logits, share: torch.Tensor, count: int) -> Rows:
    """Return the shared values of whole rows of logits. An error e of a logit changes log S by p e."""
    highest = z.z.amax(dim=1, keepdim=True)
    log_sum = torch.exp(z.z - highest).sum(dim=1, keepdim=True).log()
    p = torch.softmax(z.z, dim=1)
    exponentials = (p * (distances(z.z) + EXP_ULPS)).sum(dim=1, keepdim=True) * (2.0 * U)
    relative = exponentials + 2.0 * U + denominator_variance(p, "float32").sqrt() * deviations(count)
    shift, variance = times(p, z.shift).sum(1, True), times(p.square(), own_variance(z)).sum(1, True)
    ignored = share == 0.0
    log_sum, relative, shift, variance = (
        each.masked_fill(ignored, 0.0) for each in (log_sum, relative, shift, variance)
    )
    return Rows(highest, log_sum, relative, shift, variance, share)


def derivative(z: Logits, rows: Rows, target: torch.Tensor, first: int, case: Case) -> Derivative:
    """Return the gradients of the logits of the columns from `first` on, and their errors.

    1. An error e of z changes p = exp(z - m - log S) by p (e - the error of log S). The variance here is that of the
       first term, doubled, because the terms are not independent; `with_common_error` adds that of the second.
    2. p has the relative errors of an exponential, of S and of its logarithm in float32. Below the normal range it may
       be 0, and so may its share in the mean.
    3. p - 1 at the target, and p elsewhere, is rounded to the type of the inputs, as a factor of products.
    """
    below = rows.highest - z.z
    p = torch.exp(-below - rows.log_sum)
    at = (torch.arange(z.z.shape[1], device=p.device) + first) == target[:, None]
    p = p.masked_fill(rows.share == 0.0, 0.0)
    dz = (p - at.double()) * rows.share
    near = p.masked_fill(at, 1.0)
    own = (below.nan_to_num(0.0, 0.0, 0.0) + EXP_ULPS) * (2.0 * U) + rows.relative + rows.log_sum.abs() * (2.0 * U)
    u, counted = unit_roundoff(case.dtype), rows.share > 0.0
    shift = (times(p, own + z.shift + rows.shift) + near * (3.0 * U)) * rows.share + SMALLEST
    rounding = (dz.abs() * u).clamp(min=half_smallest(case.dtype))
    variance = times((p * rows.share).square(), own_variance(z) * 2.0) + rounding.square() / 3.0
    return Derivative(dz, shift.where(counted, 0.0), variance.where(counted, 0.0))


def with_common_error(sums: Sum, weighted: torch.Tensor, rows: Rows) -> Sum:
    """Add the variance of dx by the errors of log S, which are a factor of the sums of p W, `weighted`."""
    variance = sums.variance + weighted.square() * rows.variance * (2.0 * rows.share.square())
    return replace(sums, variance=variance)


def with_equal_roundings(sums: Sum, dz: torch.Tensor, b: torch.Tensor, case: Case) -> Sum:
    """Add the error of dz b if every dz is rounded to the nearest number of 16 bits.

    `derivative` takes these roundings for independent. They are not where the gradients of a row lie within a few steps
    of float16, such as 2^-24 below its normal range: the same step then has many of them.
    """
    if not is_narrow(case.dtype):
        return sums
    rounding = dz.to(getattr(torch, case.dtype)).double().sub_(dz)
    return replace(sums, shift=sums.shift + (rounding @ b).abs_())


class LinearCrossEntropy(Operation):
    rank = 57
    group = "losses"
    name = "linear_cross_entropy"
    formula = (
        "Z = X W^T; loss[t] = log(sum over v of exp(Z[t, v])) - Z[t, target[t]]; dX = dZ W, dW = dZ^T X, "
        "where dZ[t, v] = (softmax(Z[t])[v] - [v = target[t]]) / counted rows"
    )
    dims = ("T", "V", "H")
    is_square = True
    outputs = ("loss", "dx", "dweight")
    sweep = tuple((n, n, n) for n in (64, 256, 1024, 2048, 4096, 8192))
    telling: ClassVar[tuple[TellingCase, ...]] = (
        TellingCase("many_columns", (8, 5_003, 16)),
        TellingCase("no_features", (3, 4, 0)),
    )
    telling_left_out = ("nan@2", "infinity@", "subnormal@")
    large: ClassVar[tuple[TellingCase, ...]] = (
        TellingCase("large", (40, 4104, 72)),
        TellingCase("many_columns", (9, 70_001, 8)),
    )
    ragged: ClassVar[tuple[Shape, ...]] = ((1, 8, 1), (70, 40, 33), (5, 300, 24))
    weights = (1,)
    families: ClassVar = {
        "normal": Family("normal numbers, weights over sqrt(H), targets of which some are ignored", LAYER),
        "sizes": layer_family(family.sizes(*ragged)),
        "empty": layer_family(family.empty((0, 4, 3))),
        "strided": layer_family(family.strided_views(ODD)),
        "offset": layer_family(family.offset(ODD)),
        "ignore_index": Family(
            f"ignore_index={OTHER_INDEX}, a column, for some targets", LAYER, shapes=(ODD,),
            arguments={"ignore_index": OTHER_INDEX},
        ),
        "ignore_first": Family(
            "ignore_index=0 for some targets", LAYER, shapes=(ODD,), arguments={"ignore_index": 0}
        ),
        "all_ignored": Family("every target is ignored: zeros", with_target(), shapes=(ODD,)),
        "last_column": Family("every target is the last column", with_target(-1), shapes=(ODD,)),
        "peaked": Family("logits of either sign up to 60: some probabilities near 1", layer(15.0), shapes=(ODD,)),
        "large_logits": Family("logits up to some hundreds: exponentials overflow", layer(100.0), shapes=(ODD,)),
        "range": family.spread(ODD, 20, -20, values=LAYER),
        "nan": family.nan(ODD, values=specials.values("nan@0", LAYER)),
    }  # fmt: skip

    def family(self, inputs: str) -> Family:
        """Return the family with targets, where it draws numbers for them."""
        found = super().family(inputs)
        ignored = int(found.arguments.get("ignore_index", IGNORE_INDEX))

        def values(shapes: tuple[Shape, ...], case: Case, source: torch.Generator) -> tuple[torch.Tensor, ...]:
            x, weight, target = found.values(shapes, case, source)
            if target.is_floating_point():
                rows = x if weight.isfinite().all() else torch.full_like(x, torch.nan)  # as the logits
                target = some_targets(rows, len(weight), ignored, source)
            return x, weight, target

        return replace(found, values=values)

    def default_cases(self, device_type: str) -> list[Case]:
        """Cases on a GPU: 4096 and 8192 tokens of Llama 3 (8B); Qwen 2.5 (7B); other types."""
        if device_type != "cuda":
            return [self.case((50, 72, 40), dtype) for dtype in DTYPES]
        shapes = ((4096, 128_256, 4096), (8192, 128_256, 4096), (4096, 151_936, 3584))
        cases = [self.case(shape, "bfloat16") for shape in shapes]
        return [*cases, self.case((2048, 32_000, 4096), "float16"), self.case((1024, 32_000, 1024), "float32")]

    def operands(self, case: Case) -> tuple[Shape, ...]:
        rows, columns, features = case.shape
        return ((rows, features), (columns, features), (rows,))

    def operand_dtypes(self, case: Case) -> tuple[str, ...]:
        return (case.dtype, case.dtype, "int64")

    def arguments(self, case: Case) -> dict[str, Any]:
        return {"ignore_index": IGNORE_INDEX, **self.family(case.inputs).arguments}

    def output_shapes(self, case: Case) -> tuple[Shape, ...]:
        x, weight, target = self.operands(case)
        return (target, x, weight)

    def output_dtypes(self, case: Case) -> tuple[str, ...]:
        return ("float32", case.dtype, case.dtype)

    def output_shape(self, case: Case) -> Shape:
        return outputs.flat_shape(self.output_shapes(case))

    def output_dtype(self, case: Case) -> str:
        return outputs.joined_dtype(self.output_dtypes(case))

    def truth(self, inputs: tuple[torch.Tensor, ...], case: Case) -> Iterator[Truth]:
        """Yield losses and dx of blocks of rows in turn, then dweight of blocks of columns."""
        tokens, columns, features = case.shape
        count, begins = self.output_shape(case)[0], outputs.starts(self.output_shapes(case))
        x, weight, target = inputs[0].double(), inputs[1].double(), inputs[2]
        counted = target != self.arguments(case)["ignore_index"]
        share = (counted / counted.sum().clamp(min=1)).double()[:, None]
        together = rows_per_block(max(columns, features), 2)
        found: list[Rows] = []
        for start in range(0, tokens if columns else 0, together):
            some = slice(start, min(start + together, tokens))
            z = logits_of(x[some], weight, case)
            found.append(rows_of(z, share[some], count))
            yield self._losses(z, found[-1], target[some], some, count)
            gradient = derivative(z, found[-1], target[some], 0, case)
            p = gradient.dz + found[-1].share * (torch.arange(columns, device=x.device) == target[some, None])
            sums = with_common_error(multiply(gradient, weight), p @ weight, found[-1])
            del z, p
            sums = with_equal_roundings(sums, gradient.dz, weight, case)
            del gradient
            yield self._piece(sums, columns, begins[1] + start * features, count, case)
            del sums
        if not columns:
            zeros = torch.zeros(tokens * (1 + features), dtype=torch.float64, device=x.device)
            yield Truth((slice(0, tokens),), zeros[:tokens], zeros[:tokens], dtype="float32")
            yield Truth((slice(tokens, len(zeros)),), zeros[tokens:], zeros[tokens:], dtype=case.dtype)
            return
        rows = (
            Rows(*(torch.cat([getattr(each, name) for each in found]) for name in Rows.__dataclass_fields__))
            if found
            else None
        )
        together = rows_per_block(max(tokens, features), 2)
        for start in range(0, columns, together):
            of_block = weight[start : start + together]
            if rows is None:
                sums = Sum(*(torch.zeros_like(of_block) for _ in range(4)))
            else:
                gradient = derivative(logits_of(x, of_block, case), rows, target, start, case)
                sums = multiply(gradient, x, transposed=True)
                sums = with_equal_roundings(sums, gradient.dz.T, x, case)
                del gradient
            yield self._piece(sums, tokens, begins[2] + start * features, count, case)
            del sums

    def _losses(self, z: Logits, rows: Rows, target: torch.Tensor, some: slice, count: int) -> Truth:
        """Return the losses of some rows. An error e of the target's logit changes one by (1 - p) e."""
        counted = rows.share[:, 0] > 0.0
        columns = z.z.shape[1]
        outside = counted & ((target < 0) | (target >= columns))
        at = target.where(counted & ~outside, 0)[:, None]
        wanted = z.z.gather(1, at)[:, 0].masked_fill(outside, float("nan"))
        highest, log_sum = rows.highest[:, 0], rows.log_sum[:, 0]
        value = log_sum + (highest - wanted)
        error = rows.relative[:, 0] + (log_sum.abs() + highest.abs() + wanted.abs()) * (4.0 * U) + value.abs() * U
        error = error + rows.shift[:, 0] + z.shift.gather(1, at)[:, 0]
        variance = 2.0 * (rows.variance[:, 0] + own_variance(z).gather(1, at)[:, 0])
        error = error + variance.sqrt() * deviations(count)
        value, error = value.masked_fill(~counted, 0.0), error.masked_fill(~counted, 0.0)
        return Truth((some,), value, limit(error, value, "float32"), dtype="float32")

    def _piece(self, sums: Sum, terms: int, begin: int, count: int, case: Case) -> Truth:
        bound = sums.limit(terms, count, case)
        place = (slice(begin, begin + bound.numel()),)
        return Truth(place, sums.value.reshape(-1), bound.reshape(-1), dtype=case.dtype)

    def flops(self, case: Case) -> int:
        """Count three products, and per logit comparison, difference, exponential, sum, product and difference."""
        return case["T"] * case["V"] * (6 * case["H"] + 6)

    def workspace_bytes(self, case: Case) -> int:
        """Count float64 arrays: of the operands, of a block of logits, and of a block of gradients."""
        tokens, columns, features = case.shape
        rows = min(tokens, rows_per_block(max(columns, features), 2))
        others = min(columns, rows_per_block(max(tokens, features), 2))
        block = max(rows * (20 * columns + 10 * features), others * (20 * tokens + 10 * features))
        return 8 * (3 * (tokens + columns) * features + block)


OP = LinearCrossEntropy()
