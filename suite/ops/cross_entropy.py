"""cross_entropy: the loss of each token, and the gradient of the mean loss with respect to the logits."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch

from suite.numerics.bounds import EXP_ULPS, deviations, limit, longest_chain, sum_variance
from suite.numerics.formats import DTYPES, MIN_EXPONENT, half_smallest, unit_roundoff
from suite.numerics.noise import Noise, sample
from suite.numerics.repeats import repeats
from suite.ops.softmax import denominator_variance, distances, minus_infinity, shifted
from suite.problem import family, numbers, outputs
from suite.problem.blocks import rows_per_block
from suite.problem.case import Case
from suite.problem.family import Family
from suite.problem.operation import Operation
from suite.problem.shape import Shape
from suite.problem.telling_case import TellingCase
from suite.problem.truth import Truth

IGNORE_INDEX, OTHER_INDEX, SMOOTHING = -100, 3, 0.1
"""The usual index of targets that do not count, another one, and the smoothing of the family `smoothing`."""
IGNORED = 0.125
"""Share of targets that are drawn as ignored."""
ODD = (9, 136)
"""Shape of most families: no multiple of a tile."""
U = unit_roundoff("float32")
SMALLEST = 2.0 ** MIN_EXPONENT["float32"]
"""Exponentials below this may be flushed to 0, relative to the largest of their row."""


def some_targets(x: torch.Tensor, columns: int, ignore_index: int, source: torch.Generator) -> torch.Tensor:
    """Draw a column for each row of x, or `ignore_index` for some rows; for all rows if there are no columns.

    Rows with NaN or infinities are never ignored: libraries multiply the numbers of an ignored row by 0.
    """
    rows = len(x)
    drawn = torch.randint(max(columns, 1), (rows,), generator=source, device=source.device)
    ignored = torch.rand((rows,), generator=source, device=source.device) < IGNORED
    finite = x.isfinite().all(dim=1)
    ignored &= finite
    drawn.masked_fill_(~finite & (drawn == ignore_index), min(int(ignore_index == 0), max(columns - 1, 0)))
    return drawn.masked_fill_(ignored, ignore_index) if columns else drawn.fill_(ignore_index)


def with_target(fixed: int | None = None) -> numbers.Values:
    """Draw normal logits and one target for all rows: a column, counted from the end if negative; None: ignored."""

    def values(shapes: tuple[Shape, ...], case: Case, source: torch.Generator) -> tuple[torch.Tensor, ...]:
        *others, (rows,) = shapes
        target = IGNORE_INDEX if fixed is None else fixed % max(case["V"], 1)
        drawn = tuple(numbers.normals(shape, case, source) for shape in others)
        return (*drawn, torch.full((rows,), target, dtype=torch.int64, device=source.device))

    return values


@dataclass
class Losses:
    """The losses of some rows with their largest errors, (rows,), and the gradients of their sum, (rows, V); float64.

    relative: error of a probability, relative to it. probability: the softmax. variance: the relative variance of the
    sum of a row's exponentials, (rows, 1).
    """

    loss: torch.Tensor
    loss_error: torch.Tensor
    gradient: torch.Tensor
    probability: torch.Tensor
    relative: torch.Tensor
    variance: torch.Tensor
    log_sum: torch.Tensor
    expected: torch.Tensor
    """The smoothed target distribution, (rows, V)."""
    counted: torch.Tensor

    def gradient_error(self) -> torch.Tensor:
        """Return the largest error of the gradient: of the probability, of the target's share, and of their difference.

        Autograd computes the gradient as the probability times the sum of all shares, minus the share.
        """
        error = (self.relative + 3.0 * U) * self.probability + self.expected * (3.0 * U) + SMALLEST
        return error.masked_fill_(~self.counted[:, None], 0.0)


def losses(z: torch.Tensor, target: torch.Tensor, count: int, ignore_index: int, smoothing: float) -> Losses:
    """Compute losses and gradients of some rows of logits, float64, and the errors of float32 arithmetic.

    A row whose target is outside [0, V) has NaN.
    count: results of the whole case. With m the largest logit, S = sum exp(z - m) and d = m - z:
    1. an exponential has the error of its argument, as large as d, and EXP_ULPS; S has those of its terms and of a sum;
    2. a probability may be exp(d - log S), which has the error of the logarithm too;
    3. the loss is log S + d of the target, or log S + m - z: its terms may be added in any order.
    """
    columns = z.shape[1]
    counted = target != ignore_index
    outside = counted & ((target < 0) | (target >= columns))
    z = z.masked_fill(outside[:, None], math.nan)
    at = target.where(counted & ~outside, 0)[:, None]
    highest = z.amax(dim=1)
    below = highest[:, None] - z
    probability = torch.softmax(z, dim=1)
    log_sum = torch.exp(-below).sum(dim=1).log()
    own = (distances(z) + EXP_ULPS) * (2.0 * U)
    variance = denominator_variance(probability, "float32")
    common = (probability * own).sum(dim=1, keepdim=True) + 2.0 * U + variance.sqrt() * deviations(count)
    relative = own.add_(common + log_sum.abs()[:, None] * (2.0 * U))

    wanted = below.gather(1, at)[:, 0]
    loss = (1.0 - smoothing) * (log_sum + wanted)
    error = common[:, 0] + (log_sum.abs() + highest.abs() + z.gather(1, at)[:, 0].abs()) * (4.0 * U)
    expected = torch.full_like(z, smoothing / columns)
    expected.scatter_add_(1, at, torch.full_like(at, 1.0 - smoothing, dtype=z.dtype))
    if smoothing:
        mean = below.mean(dim=1)
        loss = loss + smoothing * (log_sum + mean)
        error = error + smoothing * (mean_error(z, below, count) + mean * (4.0 * U))
    gradient = (probability - expected).masked_fill_(~counted[:, None], 0.0)
    error = (error + loss.abs() * U).masked_fill(~counted, 0.0)
    loss = loss.masked_fill(~counted, 0.0)
    return Losses(loss, error, gradient, probability, relative, variance, log_sum, expected, counted)


def mean_error(z: torch.Tensor, below: torch.Tensor, count: int) -> torch.Tensor:
    """Return the error of the mean of each row's logits, or of their distances below the largest."""
    columns, equal = z.shape[1], repeats(z)
    variance = sum(
        sum_variance(each.sum(1, True), each.square().sum(1, True), longest_chain(columns), None, equal)
        for each in (z, below)
    )
    assert isinstance(variance, torch.Tensor)
    return variance.sqrt()[:, 0] * (deviations(count) / columns)


def gradient_noise(found: Losses, z: torch.Tensor, mean_of: float, rows: int) -> Noise:
    """Return the noise of the gradients. The gradients of a row share the error of its sum of exponentials."""
    at = sample(tuple(z.shape), z.device)
    distance = distances(z)
    mean = (found.probability * distance).sum(dim=1)[at[0]]
    size, distance = found.probability[at], distance[at]
    factor = found.counted[at[0]].double() / mean_of
    common = (distance - mean).abs() + EXP_ULPS * 2.0 + 4.0 + 2.0 * found.log_sum[at[0]].abs()
    systematic = factor * (size * U * common + found.expected[at] * (3.0 * U) + SMALLEST)
    variance = size.square() * (found.variance[at[0], 0] + distance.square() * (2.0 * U**2 / 3.0))
    return Noise(systematic, factor.square() * variance, rows)


class CrossEntropy(Operation):
    rank = 56
    group = "losses"
    name = "cross_entropy"
    formula = (
        "loss[t] = log(sum over v of exp(z[t, v])) - z[t, target[t]]; "
        "dz[t, v] = (softmax(z[t])[v] - [v = target[t]]) / counted rows"
    )
    dims: tuple[str, ...] = ("T", "V")
    is_square = True
    outputs: tuple[str, ...] = ("loss", "dlogits")
    sweep: ClassVar[tuple[Shape, ...]] = tuple((1024, 2**k) for k in range(6, 19, 2))
    telling: ClassVar[tuple[TellingCase, ...]] = (TellingCase("longest_row", (1, 65_793), first=False),)
    # At an infinite logit a logsumexp is infinite and a softmax NaN. The targets are integers.
    telling_left_out: tuple[str, ...] = ("nan@1", "infinity@0", "infinity@1", "subnormal@1", "subnormal@0")
    large: ClassVar[tuple[TellingCase, ...]] = (
        TellingCase("large", (16, 131_072)),
        TellingCase("many_rows", (70_001, 3)),
    )
    ragged: ClassVar[tuple[Shape, ...]] = ((1, 1), (5, 257), (2, 4104))
    families: ClassVar = {
        "normal": Family("random normal logits, targets of which some are ignored; default sizes", family.NORMALS),
        "sizes": family.sizes(*ragged),
        "empty": family.empty((0, 5), (5, 0)),
        "strided": family.strided_views(ODD),
        "offset": family.offset(ODD),
        "misaligned_rows": family.misaligned_rows(ODD),
        "broadcast": family.broadcast(ODD),
        "smoothing": Family(
            f"label_smoothing={SMOOTHING}",
            family.NORMALS,
            shapes=(ODD, (2, 4104)),
            arguments={"label_smoothing": SMOOTHING},
        ),
        "ignore_index": Family(
            f"ignore_index={OTHER_INDEX}, a column, for some targets", family.NORMALS, shapes=(ODD,),
            arguments={"ignore_index": OTHER_INDEX},
        ),
        "ignore_first": Family(
            "ignore_index=0 for some targets", family.NORMALS, shapes=(ODD,), arguments={"ignore_index": 0}
        ),
        "all_ignored": Family("every target is ignored: zeros", with_target(), shapes=(ODD,)),
        "last_column": Family("every target is the last column", with_target(-1), shapes=(ODD, (2, 4104))),
        "nan": family.nan(ODD),
        "infinity": family.infinity(ODD, values=numbers.per_operand(minus_infinity, numbers.normals)),
        "largest": family.large(ODD, values=numbers.per_operand(numbers.extremes, numbers.normals)),
        "shifted": Family(
            "rows around 1000 and -1000: exponentials overflow or vanish unless the maximum is subtracted",
            numbers.per_operand(shifted, numbers.normals),
            shapes=(ODD, (2, 4104)),
        ),
        "peaks": Family(
            "long rows, and a number at one end that outweighs all others",
            numbers.per_operand(numbers.peaks(12.0), numbers.normals),
            shapes=((2, 16_408),),
        ),
        "huge": family.huge((2**16 + 1, 2**15 + 8)),
    }  # fmt: skip

    def family(self, inputs: str) -> Family:
        """Return the family with targets, where it draws numbers for them."""
        found = super().family(inputs)
        ignored = int(found.arguments.get("ignore_index", IGNORE_INDEX))

        def values(shapes: tuple[Shape, ...], case: Case, source: torch.Generator) -> tuple[torch.Tensor, ...]:
            logits, target = found.values(shapes, case, source)
            if target.is_floating_point():
                target = some_targets(logits, case["V"], ignored, source)
            return logits, target

        return replace(found, values=values)

    def default_cases(self, device_type: str) -> list[Case]:
        """Cases on a GPU: the vocabularies of Llama 2 (32,000), Llama 3 (128,256) and Qwen 2.5 (151,936)."""
        if device_type != "cuda":
            return [self.case((50, 264), dtype) for dtype in DTYPES]
        shapes = ((16384, 32_000), (4096, 128_256), (4096, 151_936))
        cases = [self.case(shape, "bfloat16") for shape in shapes]
        return [*cases, self.case((4096, 32_000), "float16"), self.case((4096, 32_000), "float32")]

    def operands(self, case: Case) -> tuple[Shape, ...]:
        return (case.shape, (case["T"],))

    def operand_dtypes(self, case: Case) -> tuple[str, ...]:
        return (case.dtype, "int64")

    def arguments(self, case: Case) -> dict[str, Any]:
        plain = {"ignore_index": IGNORE_INDEX, "label_smoothing": 0.0}
        return {**plain, **self.family(case.inputs).arguments}

    def output_shapes(self, case: Case) -> tuple[Shape, ...]:
        return ((case["T"],), case.shape)

    def output_dtypes(self, case: Case) -> tuple[str, ...]:
        return ("float32", case.dtype)

    def output_shape(self, case: Case) -> Shape:
        return outputs.flat_shape(self.output_shapes(case))

    def output_dtype(self, case: Case) -> str:
        return outputs.joined_dtype(self.output_dtypes(case))

    def truth(self, inputs: tuple[torch.Tensor, ...], case: Case) -> Iterator[Truth]:
        """Yield the losses and the gradients of blocks of whole rows in turn."""
        (rows, columns), arguments = case.shape, self.arguments(case)
        logits, target = inputs
        count, ignored = self.output_shape(case)[0], arguments["ignore_index"]
        mean_of = float(max(int((target != ignored).sum()), 1))
        if columns == 0:
            zeros = torch.zeros(rows, dtype=torch.float64, device=logits.device)
            yield Truth((slice(0, rows),), zeros, zeros, dtype="float32")
            return
        together = rows_per_block(columns)
        for start in range(0, rows, together):
            stop = min(start + together, rows)
            z = logits[start:stop].double()
            found = losses(z, target[start:stop], count, ignored, arguments["label_smoothing"])
            bound = limit(found.loss_error, found.loss, "float32")
            yield Truth((slice(start, stop),), found.loss, bound, dtype="float32")
            value, error = found.gradient / mean_of, found.gradient_error() / mean_of
            error = error.add_(value.abs(), alpha=2.0 * U) + half_smallest("float32")
            noise = gradient_noise(found, z, mean_of, rows)
            del z, found
            place = slice(rows + start * columns, rows + stop * columns)
            bound = limit(error, value, case.dtype)
            yield Truth((place,), value.reshape(-1), bound.reshape(-1), noise, dtype=case.dtype)
            del value, error, bound

    def flops(self, case: Case) -> int:
        """Count one each for comparison, difference, exponential, sum, product and the difference to the target."""
        return 6 * case["T"] * case["V"]

    def workspace_bytes(self, case: Case) -> int:
        """Count float64 arrays of one block of rows."""
        rows, columns = case.shape
        return 8 * 12 * min(rows, rows_per_block(columns)) * columns + 8 * 12 * rows


OP = CrossEntropy()
