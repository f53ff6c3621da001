"""Agreement: is an output what float64 says, within what its arithmetic can be blamed for?

The only tolerance numbers of the tree are here, and each is derived: from unit roundoffs, the length of the reduction,
and the magnitudes that enter it. docs/agreement.md has the derivations. In short, a bound is

    MARGIN (systematic + deviations(count) sqrt(variance) + ulp / 2)

    ulp / 2     the one rounding of the output to its type. Elementwise operations have little else.
    systematic  errors of one sign, which add up: tensor cores truncate where they should round.
    variance    of errors of mean zero, which add up as the square root of their number (Higham and Mary, "A new
                approach to probabilistic rounding error analysis", SIAM J. Sci. Comput. 41, 2019). A rounding is
                uniform within half a unit in the last place, at most u|x|: its variance is at most (u x)^2 / 3, and its
                tails are no heavier than a normal distribution's of that variance, so neither are those of sums.

One of `count` outputs is `deviations(count)` standard deviations off with a probability of FALSE_ALARM. So a right
kernel's error ratio is at most 1 / MARGIN = 2/3, and an error of half as much again is wrong. A worst-case bound grows
as n, not sqrt(n), and would let tf32 pass as float32 from n = 4096 on; it is used where n is so small that it is less.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import torch

from suite.core.errors import SuiteError

SIGNIFICANT_BITS = {"float32": 24, "tf32": 11, "float16": 11, "bfloat16": 8, "float8_e4m3fn": 4}
MIN_EXPONENT = {"float32": -126, "float16": -14, "bfloat16": -126, "float8_e4m3fn": -6}
FLOAT64_EXPONENT = 0x7FF << 52
MAX_FINITE = {name: torch.finfo(getattr(torch, name)).max for name in MIN_EXPONENT}

MARGIN = 1.5
"""Every bound is this much more than a right kernel does."""
FALSE_ALARM = 1e-6
"""Probability that independent roundings take one right kernel, somewhere in its output, to a ratio of 1 / MARGIN. That
one is refused, with a ratio above 1, is rarer still, and for sums that wander no more probable (docs/agreement.md)."""
EXP_ULPS = 2.0
"""Largest error of a float32 exponential (CUDA C++ Programming Guide: expf 1, ex2.approx 2 units in the last place)."""
MMA_DEPTH = {"tf32": 4, "float16": 8, "bfloat16": 8, "float8_e4m3fn": 16}
"""Products that a tensor core adds to its accumulator in one step: A100's, the least of those with these types; of
float8 half of what Hopper's add, since no more is known of others."""
MMA_WIDTH = 32
"""The most float8 products that one step adds."""
FLOAT8_SUM_BITS = 14
"""Significant bits of a sum of float8 products in a tensor core (docs/agreement.md)."""
PROMOTED_TERMS = 128
"""Products that such a sum may have in the precision `promoted` before it is added to others in float32."""


@dataclass(frozen=True)
class Truth:
    """A piece of the exact result: where it lies in the output, its float64 value, the largest error allowed there."""

    index: tuple[slice, ...]
    value: torch.Tensor
    limit: torch.Tensor


@dataclass(frozen=True)
class Verdict:
    """`error_ratio` is the largest error over its bound: above 1 is wrong, infinite where NaN or shape differ.

    `reason` begins with its kind: type, shape, dtype, device, strides, not finite, value.
    """

    agrees: bool
    error_ratio: float
    max_ulp: float
    max_rel: float
    reason: str = ""


def unit_roundoff(kind: str) -> float:
    """Largest relative error of rounding to nearest: float32 2^-24, float16 and tf32 2^-11, bfloat16 2^-8."""
    return 2.0 ** -SIGNIFICANT_BITS[kind]


def half_smallest(dtype: str) -> float:
    """Largest error of rounding to nearest below the normal range."""
    return 2.0 ** (MIN_EXPONENT[dtype] - SIGNIFICANT_BITS[dtype])


def ulp(value: torch.Tensor, dtype: str) -> torch.Tensor:
    """Distance between neighbours of `dtype` at `value` (float64); the subnormal spacing below the normal range."""
    power = (value.view(torch.int64) & FLOAT64_EXPONENT).view(torch.float64)  # of two, at most |value|
    return power.clamp_(min=2.0 ** MIN_EXPONENT[dtype]).mul_(2.0 ** (1 - SIGNIFICANT_BITS[dtype]))


def deviations(count: int) -> float:
    """Standard deviations that one of `count` sums of rounding errors exceeds with a probability of FALSE_ALARM."""
    return math.sqrt(2.0 * math.log(2.0 * max(count, 1) / FALSE_ALARM))


def limit(error: torch.Tensor | float, value: torch.Tensor, dtype: str) -> torch.Tensor:
    """The bound of a result that may err by `error` before it is rounded to `dtype`."""
    bound = ulp(value, dtype).mul_(MARGIN / 2.0)
    return bound.add_(error, alpha=MARGIN) if isinstance(error, torch.Tensor) else bound.add_(MARGIN * error)


def rounding_limit(value: torch.Tensor, dtype: str) -> torch.Tensor:
    """One rounding to `dtype` of the exact result: all that an addition may lose. A truncated sum is refused."""
    return limit(0.0, value, dtype)


def sigmoid_limit(value: torch.Tensor, dtype: str) -> torch.Tensor:
    """Bound for y = 1 / (1 + exp(-x)) computed in float32. value = y, float64.

    The exponential may err by EXP_ULPS, of at most 2u each relative to it, or of the spacing of subnormal numbers; y
    changes relatively by (1 - y) times that. The sum adds u, and the quotient is rounded to `dtype`.
    """
    u = unit_roundoff("float32")
    error = value * ((1.0 - value) * (EXP_ULPS * 2.0 * u) + u) + EXP_ULPS * 2.0 * half_smallest("float32")
    return limit(error, value, dtype)


def sum_variance(total: torch.Tensor, spread_squared: torch.Tensor, terms: int, depth: int | None) -> torch.Tensor:
    """Variance of the error of adding `terms` numbers, in float32 and any order. spread_squared: sum of their squares.

    Numbers that come in no particular order have partial sums s_k = (k/n) total + a random walk that returns to 0, with
    steps of size spread / sqrt(n). Each rounding has a variance of (u s_k)^2 / 3. The walk's mean square is spread^2 /
    6; it is taken as spread^2, for the few walks among many that go far. Below the normal range a rounding is of a
    spacing that no longer shrinks.

    Tensor cores add `depth` products at a time and truncate: s_k loses between 0 and 2u|s_k|. Beside a rounding's
    variance this has a mean, whose sum (`sum_shift`) varies as the walk does.
    """
    u = unit_roundoff("float32")
    of_shift = (u * math.ceil(terms / depth)) ** 2 / 12.0 if depth is not None else 0.0
    variance = torch.addcmul(spread_squared * (terms * u**2 / 3.0 + of_shift), total, total, value=terms * u**2 / 9.0)
    return variance.add_(spread_squared > 0, alpha=terms * half_smallest("float32") ** 2 / 3.0)


def sum_shift(total: torch.Tensor, terms: int, depth: int | None) -> torch.Tensor | float:
    """What truncated sums lose on average: u s_k each, and in all half of what it were if each s_k were the total."""
    if depth is None:
        return 0.0
    return total.abs() * (unit_roundoff("float32") * (math.ceil(terms / depth) + 1) / 2.0)


def matmul_limit(
    value: torch.Tensor, spread_squared: torch.Tensor, terms: int, count: int, dtype: str, precision: str
) -> torch.Tensor:
    """Bound for c = sum over `terms` of a_k b_k. value = c, spread_squared = sum (a_k b_k)^2, both float64.

    In tf32 hardware may round each input to nearest or truncate it. Truncation is a shift towards zero by u of each
    factor, 2u|c| in all, and an error that is uniform within u, like the rounding's.

    In the worst case n - 1 roundings (or truncations, twice as much) are of |a||b| <= sqrt(n) spread: products of
    float32 and partial sums, or of exact products the sums alone; and tf32 loses 4u of each product.
    """
    kind = "tf32" if precision == "tf32" else dtype
    depth = MMA_DEPTH.get(kind)
    systematic, variance = sum_shift(value, terms, depth), sum_variance(value, spread_squared, terms, depth)
    worst = (terms - 1) * unit_roundoff("float32") * (1.0 if depth is None else 2.0)
    if kind == "tf32":
        u = unit_roundoff("tf32")
        systematic = systematic + value.abs() * (2.0 * u)
        variance = variance + spread_squared * (2.0 * u**2 / 3.0)
        worst += 4.0 * u
    probable = systematic + variance.sqrt() * deviations(count)
    greatest = spread_squared.sqrt() * (worst * math.sqrt(terms)) + terms * half_smallest("float32")
    return limit(torch.minimum(probable, greatest), value, dtype)


def float8_limit(
    value: torch.Tensor, spread_squared: torch.Tensor, grain: float, terms: int, count: int, dtype: str, precision: str
) -> torch.Tensor:
    """Bound for c = sum over `terms` of a_k b_k, of float8 numbers and a scale, in chains that a tensor core adds.

    value = c, spread_squared = sum (a_k b_k)^2, both float64. grain: all products are multiples of this power of two.

    Each step aligns up to MMA_WIDTH products and the accumulator to the largest of them and truncates all of them there
    to FLOAT8_SUM_BITS, then the sum: with u = 2^-14 each loses up to 2u of the largest, whose square is at most that of
    the partial sum and those of the step's products. `partial` is the mean square of the partial sums of all chains: of
    walks like those of `sum_variance`, to totals whose squares add up to spread^2, and c^2 over the number of chains.

    1. Products and accumulators lose something uniform within 2u of the largest, in the direction of their own signs.
       Of n terms that add up to c, at most sqrt(n) c / spread more have its sign than not: each is u of it shorter.
    2. Sums lose what other tensor cores lose, with this u.
    3. If no partial sum comes near 2^14 grains, nothing at all is lost, and neither by roundings of so few bits.
    4. Chains, or all products, are added in float32, and multiplied by the scale, or by two of them.

    In the worst case the n - 1 smaller products and the n / 2 sums, twice each, lose 2u of |a||b| <= sqrt(n) spread.
    """
    chain = terms if precision == "fast" else min(terms, PROMOTED_TERMS)
    steps = math.ceil(chain / MMA_DEPTH["float8_e4m3fn"])
    share = chain / max(terms, 1)
    u, fine = 2.0**-FLOAT8_SUM_BITS, unit_roundoff("float32")

    partial = spread_squared + (spread_squared * (1.0 - share) + value.square() * share) / 3.0
    losses = partial * ((chain + steps) * 4.0 + steps) + spread_squared * (4.0 * (min(chain, MMA_WIDTH) + 1))
    variance = losses * (u**2 / 3.0) + spread_squared * ((u * steps) ** 2 / 12.0)
    in_spreads = torch.where(spread_squared > 0, partial / spread_squared, 0.0).sqrt()
    systematic = value.abs() * (in_spreads * (u * math.sqrt(chain)) + u * (steps + 1) / 2.0)
    largest = value.abs() * share + spread_squared.sqrt() * (deviations(count * terms) * math.sqrt(share))
    lossy = ~(largest < 2.0**FLOAT8_SUM_BITS * grain)

    added = sum_variance(value, spread_squared, terms, None)
    probable = torch.where(lossy, variance, 0.0).add_(added).sqrt_().mul_(deviations(count))
    probable += torch.where(lossy, systematic, 0.0)
    worst = 4.0 * u * (chain - 1) + fine * (terms - 1)
    greatest = spread_squared.sqrt() * (worst * math.sqrt(terms)) + terms * half_smallest("float32")
    return limit(torch.minimum(probable, greatest) + value.abs() * (2.0 * fine), value, dtype)


def attention_limit(
    value: torch.Tensor,
    p: torch.Tensor,
    scores: torch.Tensor,
    sizes_squared: torch.Tensor,
    v: torch.Tensor,
    *,
    head_dim: int,
    terms: int,
    count: int,
    dtype: str,
) -> torch.Tensor:
    """Bound for o = sum_j p_j v_j with p = softmax(scores), one query a row. All float64.

    value = o (rows, D). p, scores, sizes_squared (rows, keys): probabilities; scores, -inf where hidden, which are
    overwritten; and the sum over d of (scale q_d k_jd)^2. v (keys, D). terms: how many keys there are in all.

    1. A score errs by its sum over D, by roundings of the scaled score and of its distance from the largest, and by the
       exponential: relative to p_j a variance w_j. Since do = sum_j p_j (v_j - o) e_j, that of o is
       sum_j p_j^2 w_j (v_j - o)^2. The factor log2(e) sm_scale is rounded too, once for all: e_j = u s_j.
    2. In 16 bits, p_j is rounded to the type of v, relative to p_j or within the subnormal range by half its spacing;
       in the numerator alone, sum_j r_j p_j v_j, or in the denominator too, sum_j r_j p_j (v_j - o).
    3. Numerator and denominator are sums over the keys; the quotient may be a product with a reciprocal.

    Memory's bandwidth sets the time of this: arrays of all pairs are reused, and passed over as seldom as can be.
    """
    u = unit_roundoff("float32")
    depth = MMA_DEPTH.get(dtype)
    hidden = scores == -math.inf
    below = scores.amax(dim=1, keepdim=True) - scores
    scores.masked_fill_(hidden, 0.0)  # as their p, so that no product is 0 times infinity
    v_squared, p_squared = v.square(), p.square()

    relative = sum_variance(scores, sizes_squared, head_dim, depth)
    for rounded in (scores, below):
        relative.addcmul_(rounded, rounded, value=2.0 * u**2 / 3.0)
    del below
    weights = relative.add_((EXP_ULPS * 2.0 * u) ** 2 + u**2).mul_(p_squared).masked_fill_(hidden, 0.0)
    moved = scores.mul_(p)
    shift = u + u * (math.ceil(head_dim / depth) + 1) / 2.0 if depth else u
    systematic = shift * (moved @ v - value * moved.sum(dim=1, keepdim=True)).abs()

    alone = torch.zeros_like(value)
    if dtype != "float32":
        rounding = (p * (unit_roundoff(dtype) / math.sqrt(3.0))).clamp_(min=half_smallest(dtype) / math.sqrt(3.0))
        rounding.square_().masked_fill_(hidden, 0.0)
        weights += rounding
        alone = value * (2.0 * (rounding @ v) - value * rounding.sum(dim=1, keepdim=True))
    variance = weights @ v_squared + value * (value * weights.sum(dim=1, keepdim=True) - 2.0 * (weights @ v))
    variance = variance.clamp(min=0.0) + alone.clamp(min=0.0)

    variance += sum_variance(value, p_squared @ v_squared, terms, depth)
    of_denominator = sum_variance(torch.ones_like(value[:, :1]), p_squared.sum(dim=1, keepdim=True), terms, None)
    variance += value.square() * of_denominator
    systematic += sum_shift(value, terms, depth) + value.abs() * (2.0 * u)
    return limit(systematic + variance.sqrt() * deviations(count), value, dtype)


def compare(
    output: torch.Tensor,
    truths: Iterable[Truth],
    *,
    shape: tuple[int, ...],
    dtype: str,
    device: torch.device | None = None,
) -> Verdict:
    """Judge `output` against the pieces of the truth, which must cover it. `device`: where it must be, if that matters.

    NaN and infinities must stand where the truth has them; a finite truth within its bound of the largest finite
    number of `dtype` may become an infinity of its sign. Zeros of either sign are equal. `max_ulp` counts units in the
    last place of `dtype` at the truth; `max_rel` is the largest error over the largest magnitude of the truth.

    Raises `SuiteError` for truths that do not cover the output, and for a bound that is not a number.
    """
    refusal = _misfit(output, shape, dtype, device)
    if refusal is not None:
        return Verdict(False, math.inf, math.inf, math.inf, refusal)
    total = Tally()
    for truth in truths:
        total.add(_judge(output, truth, dtype))
        del truth  # before the next piece takes its memory
    if total.judged != output.numel():
        raise SuiteError(f"truth: its pieces have {total.judged} elements, the output {output.numel()}")
    max_rel = total.error / total.magnitude if total.magnitude > 0 else total.error
    reason = total.reason + (f"; {total.wrong} of {total.judged} are wrong" if total.wrong > 1 else "")
    return Verdict(total.wrong == 0, total.ratio, total.ulp, max_rel, reason)


@dataclass
class Tally:
    """What was found in some elements: how many there are, how many are wrong, the largest of each measure."""

    judged: int = 0
    wrong: int = 0
    ratio: float = 0.0
    ulp: float = 0.0
    error: float = 0.0
    magnitude: float = 0.0
    reason: str = ""
    """Of the element with the largest ratio, if that is wrong."""

    def add(self, other: Tally) -> None:
        if other.ratio > self.ratio:
            self.reason = other.reason
        self.judged += other.judged
        self.wrong += other.wrong
        for name in ("ratio", "ulp", "error", "magnitude"):
            setattr(self, name, max(getattr(self, name), getattr(other, name)))


def _judge(output: torch.Tensor, truth: Truth, dtype: str) -> Tally:
    """One piece of the output against its truth."""
    piece = output[truth.index]
    if piece.shape != truth.value.shape or piece.shape != truth.limit.shape:
        shapes = f"{tuple(truth.value.shape)} and {tuple(truth.limit.shape)}"
        raise SuiteError(f"truth: value and limit are {shapes}, where the output has {tuple(piece.shape)}")
    if piece.numel() == 0:
        return Tally()
    if _ordinary(piece, truth, dtype):
        error = (piece - truth.value).abs_()
        ratios, known = error / truth.limit, None
    else:
        error, ratios, known = _errors(piece, truth, dtype)
    found = Tally(judged=error.numel(), ratio=float(ratios.max()), error=float(error.max()))
    if found.ratio > 1.0:
        found.wrong = int((ratios > 1.0).sum())
        found.reason = _describe(ratios, output, truth)
    del ratios
    value = truth.value if known is None else torch.where(known, truth.value, 0.0)
    found.magnitude = float(torch.stack(torch.aminmax(value)).abs().max())
    found.ulp = float(error.div_(ulp(value, dtype)).max())
    return found


def _ordinary(piece: torch.Tensor, truth: Truth, dtype: str) -> bool:
    """Whether all is finite, nothing may overflow, and every bound allows something. So it is almost always; there is
    nothing to be decided element by element then, which takes three times as long as the rest."""
    extremes = [extreme.double() for x in (piece, truth.value, truth.limit) for extreme in torch.aminmax(x)]
    *_, low, high, strictest, loosest = numbers = torch.stack(extremes).tolist()
    largest = max(-low, high) + loosest
    return all(map(math.isfinite, numbers)) and strictest > 0.0 and largest <= MAX_FINITE[dtype]


def _errors(piece: torch.Tensor, truth: Truth, dtype: str) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The error of each element, 0 where it or the truth is not finite; error over bound, infinite where NaN, infinity
    or a number stands that should not; and where both are finite."""
    known = torch.isfinite(truth.value)
    if bool((known & ~((truth.limit >= 0.0) & (truth.limit < math.inf))).any()):
        raise SuiteError(f"truth: a bound is not a number where the truth is, in {truth.index}")
    piece = piece.to(torch.float64)
    placed = _well_placed(piece, truth, known, dtype)
    known &= torch.isfinite(piece)
    error = torch.where(known, piece.sub_(truth.value).abs_(), 0.0)
    ratios = torch.where(error == 0.0, 0.0, error / truth.limit).masked_fill_(~placed, math.inf)
    return error, ratios, known


def _misfit(output: object, shape: tuple[int, ...], dtype: str, device: torch.device | None) -> str | None:
    """Why `output` is not an array that the truth could be compared with."""
    if not isinstance(output, torch.Tensor):
        return f"type: the result is a {type(output).__name__}, not an array"
    if tuple(output.shape) != shape:
        return f"shape: the result is {tuple(output.shape)}, expected {shape}"
    if output.dtype != getattr(torch, dtype):
        return f"dtype: the result is {str(output.dtype).removeprefix('torch.')}, expected {dtype}"
    if device is not None and output.device != device:
        return f"device: the result is on {output.device}, expected {device}"
    if not output.is_contiguous():
        return f"strides: the result has strides {output.stride()}, expected row-major without gaps"
    return None


def _well_placed(piece: torch.Tensor, truth: Truth, known: torch.Tensor, dtype: str) -> torch.Tensor:
    """Where `piece` is a number, an infinity or NaN as it should be. known: where the truth is finite."""
    value = truth.value
    may_overflow = known & (value.abs() + truth.limit > MAX_FINITE[dtype])
    must_overflow = torch.isinf(value) | (known & (value.abs() - truth.limit > MAX_FINITE[dtype]))
    same_infinity = torch.isinf(piece) & (torch.sign(piece) == torch.sign(value))
    right = torch.isfinite(piece) | (may_overflow & same_infinity)
    return torch.where(torch.isnan(value), torch.isnan(piece), torch.where(must_overflow, same_infinity, right))


def _describe(ratios: torch.Tensor, output: torch.Tensor, truth: Truth) -> str:
    """The first of the worst elements: where, what it is and what it should be."""
    flat = int(ratios.argmax())
    local = [int(i) for i in torch.unravel_index(torch.tensor(flat), ratios.shape)]
    at = tuple(i + (s.start or 0) for i, s in zip(local, truth.index, strict=True))
    got, expected, limit = (float(t) for t in (output[at], truth.value[*local], truth.limit[*local]))
    kind = "value" if math.isfinite(got) else "not finite"
    within = f" +- {limit:.2g}" if math.isfinite(expected) else ""
    return f"{kind}: at [{', '.join(map(str, at))}] got {got:.9g}, expected {expected:.9g}{within}"
