"""multi_head_attention: y = concat_h(softmax(q_h k_h^T / sqrt(D)) v_h) w_out^T with q, k, v = x w_qkv^T, D = E / H."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, ClassVar

import torch

from suite.core.errors import UsageError
from suite.numerics.attention import attention_error, score_shift
from suite.numerics.bounds import MMA_DEPTH, deviations, limit, rounding_variance, sum_shift, sum_variance, truncation
from suite.numerics.formats import DOUBLE, DTYPES, is_narrow, unit_roundoff, working
from suite.numerics.noise import Noise, sample
from suite.numerics.repeats import distinct, repeats
from suite.problem import blocks, family, numbers, placement
from suite.problem.case import Case
from suite.problem.family import Family
from suite.problem.operation import Operation
from suite.problem.option import Option
from suite.problem.shape import Shape
from suite.problem.telling_case import TellingCase
from suite.problem.truth import Truth

ODD = (2, 19, 128, 2)
"""Shape of most families: two batch entries and heads, and sizes that are multiples of no tile."""
CAUSAL = {"causal": (True,)}


def weights(shape: Shape, case: Case, source: torch.Generator) -> torch.Tensor:
    """Normal numbers over the root of E, as layers are initialized: q, k and v are as large as x."""
    drawn = torch.randn(shape, generator=source, device=source.device, dtype=numbers.working_type(case))
    return (drawn / math.sqrt(max(shape[-1], 1))).to(numbers.dtype_of(case))


LAYER = numbers.per_operand(numbers.normals, weights)


def one_nan(shapes: tuple[Shape, ...], case: Case, source: torch.Generator) -> tuple[torch.Tensor, ...]:
    """A NaN in x, in the second half of the last batch entry. A causal mask hides it from earlier positions."""
    x, w_qkv, w_out = LAYER(shapes, case, source)
    b, s, e = shapes[0]
    numbers.put(x, math.nan, (b - 1, s - 1 - numbers.index_below(s // 2, source), numbers.index_below(e, source)))
    return x, w_qkv, w_out


def nan_weight(shapes: tuple[Shape, ...], case: Case, source: torch.Generator) -> tuple[torch.Tensor, ...]:
    """A NaN in one of the weights, which depends on the dtype."""
    x, w_qkv, w_out = LAYER(shapes, case, source)
    weight = w_qkv if case.dtype == "float32" else w_out
    numbers.put(weight, math.nan, tuple(numbers.index_below(size, source) for size in weight.shape))
    return x, w_qkv, w_out


def large_scores(shapes: tuple[Shape, ...], case: Case, source: torch.Generator) -> tuple[torch.Tensor, ...]:
    """Scores of several hundred, with small integers as q, k and v, exact in every type.

    A row of w_qkv adds four of x's numbers, from -2 to 2. Those of q and k are 8 times as large.
    """
    e = shapes[0][2]
    x = torch.randint(-2, 3, shapes[0], generator=source, device=source.device).float()
    place = torch.randint(max(e, 1), (3 * e, 4), generator=source, device=source.device)
    w_qkv = torch.zeros(shapes[1], device=source.device).scatter_(1, place, 1.0)
    w_qkv[: 2 * e] *= 8.0
    return x.to(numbers.dtype_of(case)), w_qkv.to(numbers.dtype_of(case)), weights(shapes[2], case, source)


def weights_transposed(operand: torch.Tensor, position: int) -> torch.Tensor:
    return placement.transposed(operand, position) if position else operand


def token_noise(systematic: torch.Tensor, variance: torch.Tensor, independent: int, case: Case) -> Noise | None:
    """Return the noise of some rows in 16 bits, with the number of independent errors of the whole result.

    In float32 the errors of the exponential may have one sign: averages have no narrower bound there.
    """
    if not is_narrow(case.dtype):
        return None
    at = sample((1, *systematic.shape), systematic.device)[1:]
    return Noise(systematic[at], variance[at], independent)


def independent_errors(x: torch.Tensor, w_v: torch.Tensor, w_out: torch.Tensor, heads: int) -> int:
    """Return the number of independent roundings of q, k, v and o: one for each token and head.

    Equal tokens have equal ones, and so have equal features of v. With equal columns of w_out, a result depends on the
    sum of these features alone.
    """
    return distinct(x) * min(heads, distinct(w_v), distinct(w_out.T))


def equal_features(weights: torch.Tensor, parts: int) -> torch.Tensor:
    """Return how many features of x weights^T are equal, in each of so many parts: those whose weights are equal."""
    features = weights @ torch.linspace(1.0, 2.0, weights.shape[1], dtype=weights.dtype, device=weights.device).sqrt_()
    return repeats(features.abs().view(parts, -1)).view(-1)


class MultiHeadAttention(Operation):
    rank = 58
    group = "attention"
    name = "multi_head_attention"
    formula = "Y = concat over h of (softmax(Q_h K_h^T / sqrt(E / H)) V_h) W_out^T, where Q, K, V = X W_qkv^T"
    dtypes_beyond = (DOUBLE,)
    dims = ("B", "S", "E", "H")
    options = (Option("causal", (False, True), "queries do not see later keys", every=True),)
    sweep = tuple((1, s, 1024, 16) for s in (16, 64, 256, 1024, 4096, 16384))
    telling = (
        TellingCase("wide", (1, 9, 512, 8)),
        TellingCase("one_feature", (2, 9, 1, 1), first=False),
        TellingCase("67_features", (1, 9, 201, 3), first=False),
        TellingCase("whole_tiles", (1, 192, 64, 1), options={"causal": True}, first=False),
        TellingCase("E=1024", (1, 3, 1024, 16), first=False),
    )
    telling_left_out = ("nan_causal",)
    large: ClassVar[tuple[TellingCase, ...]] = (
        TellingCase("large", (1, 12, 2048, 16)),
        TellingCase("long", (1, 1032, 64, 1)),
    )
    ragged: ClassVar[tuple[Shape, ...]] = ((1, 1, 64, 1), (1, 66, 128, 2))
    weights = (1, 2)
    families: ClassVar = {
        "normal": Family("random normal numbers; the operation's default sizes", LAYER),
        "sizes": replace(family.sizes(*ragged), values=LAYER),
        "empty": replace(family.empty((0, 5, 64, 1), (2, 0, 64, 1)), values=LAYER),
        "transposed": Family("weights stored transposed", LAYER, weights_transposed, shapes=(ODD,), options=CAUSAL),
        "strided": replace(family.strided_views(ODD), values=LAYER, options=CAUSAL),
        "nan": replace(family.nan((2, 12, 64, 1)), values=one_nan),
        "nan_weights": Family(
            "NaN in a weight: w_qkv for float32, else w_out", nan_weight, shapes=(ODD,), options={"causal": (False,)}
        ),
        "range": family.spread(ODD, 20, -20, 20, values=LAYER),
        "large_logits": Family(
            "scores whose exponential overflows unless their maximum is subtracted", large_scores, shapes=(ODD,)
        ),
    }

    def default_cases(self, device_type: str) -> list[Case]:
        """Cases on a GPU: 16384 tokens of 2048 features in heads of 128 and 64; short sequences; other types."""
        if device_type != "cuda":
            return [self.case((2, 40, 128, 2), dtype, causal=causal) for dtype in DTYPES for causal in (False, True)]
        cases = [self.case((4, 4096, 2048, 16), "bfloat16", causal=causal) for causal in (False, True)]
        cases += [self.case((4, 4096, 2048, 32), "bfloat16", causal=True)]
        cases += [self.case((16, 512, 1024, 16), "bfloat16", causal=True)]
        cases += [self.case((4, 4096, 2048, 16), "float16", causal=True)]
        return [*cases, self.case((2, 512, 1024, 8), "float32", causal=True)]

    def validate(self, dims: Mapping[str, int]) -> None:
        if not dims["H"] or dims["E"] % dims["H"]:
            raise UsageError(f"--shape: E={dims['E']} must be a multiple of H={dims['H']}")

    def covered_sizes(self) -> dict[str, tuple[int, ...]]:
        """Return sizes with E as the heads times the features of one, D."""
        return {"B": (1, 3), "S": (1, 31, 64, 257), "H": (1, 2, 3), "D": (32, 64, 128)}

    def shape_of_sizes(self, sizes: Mapping[str, int]) -> Shape:
        return (sizes["B"], sizes["S"], sizes["H"] * sizes["D"], sizes["H"])

    def operands(self, case: Case) -> tuple[Shape, ...]:
        b, s, e, _ = case.shape
        return ((b, s, e), (3 * e, e), (e, e))

    def random_shape(self, size: Callable[[], int]) -> Shape:
        heads = 1 + size() % 2
        return (size() % 3, size(), 64 * heads, heads)

    def arguments(self, case: Case) -> dict[str, Any]:
        return {"heads": case["H"], "causal": case.option("causal", False)}

    def output_shape(self, case: Case) -> Shape:
        return case.shape[:3]

    def flops(self, case: Case) -> int:
        """Count the products with w_qkv and w_out, and two products of 2 D operations for each visible pair."""
        b, s, e, _ = case.shape
        pairs = s * (s + 1) // 2 if case.option("causal") else s * s
        return b * (8 * s * e * e + 4 * pairs * e)

    def truth(self, inputs: tuple[torch.Tensor, ...], case: Case) -> Iterator[Truth]:
        """Yield one batch entry at a time. The bound is that of the last product, with the errors of its factor o.

        In 16 bits q, k, v and o may be rounded once each. Errors of o at different features are taken as independent,
        and so are those of q, k and v, unless features are equal. The systematic error of truncated sums is common to
        all.
        """
        b, s, e, h = case.shape
        if b * s * e == 0:
            return
        depth, count = MMA_DEPTH.get(case.dtype), b * s * e
        w_qkv, w_out = (each.double() for each in inputs[1:])
        independent = independent_errors(inputs[0], w_qkv[2 * e :], w_out, h)
        squared, equal = w_qkv.square(), equal_features(w_qkv, 3 * h).view(3, h)
        for batch in range(b):
            x = inputs[0][batch].double()
            qkv = x @ w_qkv.T
            variance = sum_variance(qkv, x.square() @ squared.T, e, depth, None, case.dtype)
            if is_narrow(case.dtype):
                variance += rounding_variance(qkv, case.dtype)
            o, o_variance, moved = self._heads(qkv, variance, equal, case)
            if is_narrow(case.dtype):
                o_variance += rounding_variance(o, case.dtype)
            value, lost = o @ w_out.T, truncation(e, depth) + truncation(s, depth)
            systematic = (
                (moved @ w_out.T).abs_().mul_(score_shift(e // h, depth, case.dtype) + 2.0 * truncation(e, depth))
            )
            systematic += value.abs() * lost + sum_shift(value, e, depth)
            systematic += (o.abs() @ w_out.abs().T).mul_(2.0 * unit_roundoff(working(case.dtype)))  # from the quotient
            variance = o_variance @ w_out.square().T * equal_features(w_qkv[2 * e :], 1)
            variance += sum_variance(value, o.square() @ w_out.square().T, e, depth, None, case.dtype)
            bound = limit(systematic + variance.sqrt() * deviations(count), value, case.dtype)
            del qkv, o, o_variance, moved
            for at in blocks.blocks((s, e)):
                noise = token_noise(systematic[at], variance[at], independent, case)
                yield Truth((slice(batch, batch + 1), *at), value[at][None], bound[at][None], noise)

    def _heads(
        self, qkv: torch.Tensor, variance: torch.Tensor, equal: torch.Tensor, case: Case
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return attention's result, its variance and its derivative by the scores' growth, of one batch entry.

        equal (3, heads): how many features of q, k and v are equal. Their errors are equal too, and add up in scores.
        """
        (_, s, e, h), d = case.shape, case["E"] // case["H"]
        o, o_variance, moved = (torch.empty(s, e, dtype=torch.float64, device=qkv.device) for _ in range(3))
        for head in range(h):
            at = [slice(part * e + head * d, part * e + head * d + d) for part in range(3)]
            q, k, v = (qkv[:, each] for each in at)
            errors = [variance[:, each] * times for each, times in zip(at, (*equal[:2, head], 1.0), strict=True)]
            repeated = equal[:2, head].min()
            products = (k.nan_to_num(0.0)[:, :, None] * v.nan_to_num(0.0)[:, None, :]).view(s, d * d)
            for start in range(0, s, self._rows(case)):
                rows = slice(start, min(start + self._rows(case), s))
                found = _attended(q[rows], k, v, errors[0][rows], errors[1], errors[2], products, repeated, start, case)
                o[rows, at[0]], o_variance[rows, at[0]], moved[rows, at[0]] = found
        return o, o_variance, moved

    def _rows(self, case: Case) -> int:
        """Return the queries per step: their scores, and products of keys and values, are an eighth of a block."""
        return max(1, min(case["S"], blocks.rows_per_block(max(case["S"], (case["E"] // case["H"]) ** 2), share=8)))

    def workspace_bytes(self, case: Case) -> int:
        _, s, e, h = case.shape
        d, rows = e // max(h, 1), self._rows(case)
        arrays = 8 * rows * s + 3 * rows * d * d + s * d * d + 24 * s * e + 10 * e * e
        return 8 * arrays + blocks.block_bytes((s, e))


def _attended(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    q_variance: torch.Tensor,
    k_variance: torch.Tensor,
    v_variance: torch.Tensor,
    products: torch.Tensor,
    repeated: torch.Tensor,
    start: int,
    case: Case,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return attention's result for rows of q from `start` on, its variance, and its derivative by the scores' growth.

    q_variance, k_variance, v_variance: variances of the operands. products (keys, D D): products of each key's
    features with those of its value. repeated: how many terms of a score are equal. An error of v_j adds p_j times
    itself to o. An error of k_j moves one score of each query. An error of feature c of q moves all scores of a row,
    and o by the covariance of k_jc and v_j under p.
    """
    (s, d), scale = k.shape, 1.0 / math.sqrt(k.shape[1])
    q = q * scale
    scores, hidden = q @ k.T, None
    if case.option("causal"):
        positions = torch.arange(s, device=q.device)
        hidden = positions > positions[start : start + len(q), None]
        scores.masked_fill_(hidden, -math.inf)
    p = torch.softmax(scores, dim=1)
    finite, odd = v.nan_to_num(0.0), ~v.isfinite()
    value = p @ finite
    covariances = (p @ products).view(len(q), d, d)
    covariances -= (p @ k.nan_to_num(0.0))[:, :, None] * value[:, None, :]
    sizes_squared, score_variance = q.square() @ k.square().T, q.square() @ k_variance.T
    if float(repeated) > 1.0:
        seen = scores.masked_fill(scores == -math.inf, 0.0)
        score_variance += sum_variance(seen, sizes_squared, d, MMA_DEPTH.get(case.dtype), repeated, case.dtype)
    moved, variance = attention_error(
        value, p, scores, sizes_squared, finite, head_dim=d, terms=s, dtype=case.dtype, score_variance=score_variance
    )
    variance += p.square() @ v_variance.nan_to_num(0.0)
    variance += torch.einsum("rc,rcd->rd", q_variance * scale**2, covariances.square_())
    for key in odd.any(dim=1).nonzero().flatten().tolist():
        product = p[:, key, None] * torch.where(odd[key], v[key], 0.0)
        value += product if hidden is None else product.masked_fill_(hidden[:, key, None], 0.0)
    return value, variance, moved


OP = MultiHeadAttention()
