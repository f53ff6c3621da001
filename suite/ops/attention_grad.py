"""attention_grad: the gradients of attention's q, k and v, from the gradient of its output; forward and backward."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import ClassVar

import torch

from suite.numerics.attention import exponential_variance
from suite.numerics.bounds import (
    MMA_DEPTH,
    deviations,
    flushed,
    limit,
    rounding_variance,
    sum_shift,
    sum_variance,
    truncation,
)
from suite.numerics.formats import DOUBLE, DTYPES, is_narrow, unit_roundoff, working
from suite.numerics.masks import first_seen, hidden
from suite.numerics.noise import Noise, sample
from suite.ops.attention import SM_SCALE, WINDOWS, Attention, window_of
from suite.problem import family, numbers, outputs
from suite.problem.attention_inputs import (
    append_normal_gradient,
    far_below,
    infinite_gradient,
    large_scores,
    minus_infinity,
    one_nan,
    stored_bshd,
)
from suite.problem.case import Case
from suite.problem.family import Family
from suite.problem.option import Option
from suite.problem.shape import Shape
from suite.problem.telling_case import TellingCase
from suite.problem.truth import Truth

ODD = (1, 2, 1, 50, 70, 64)
"""Shape of most families: grouped heads, and sizes that are multiples of no tile."""
CAUSAL = {"causal": (True,)}
"""Options of most families: some pairs are visible and some are hidden."""
LOG_ERROR = 4.0
"""Error of a float32 logarithm, in unit roundoffs of its value plus 1 (CUDA C++ Programming Guide: lg2.approx)."""


@dataclass
class Pairs:
    """Pairs of some queries (rows) with all keys of one head, float64: p, and ds = p (dp - delta) with dp = do v^T.

    The error of p_ij is p_ij (e_ij + e_i), that of ds_ij is ds_ij (e_ij + e_i) + p_ij (d_ij + d_i). The errors e and d,
    of pairs and of rows, are independent of each other.
    """

    p: torch.Tensor
    ds: torch.Tensor
    p_variance: torch.Tensor
    """Variance of p_ij e_ij, with the rounding to 16 bits."""
    ds_variance: torch.Tensor
    """Variance of ds_ij e_ij + p_ij d_ij, with the rounding to 16 bits."""
    exponent: torch.Tensor
    """Variance of e_i, (rows, 1)."""
    delta: torch.Tensor
    """Variance of d_i, (rows, 1)."""
    p_shift: torch.Tensor
    """Largest systematic error of p_ij."""
    ds_shift: torch.Tensor


def pairs(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, do: torch.Tensor, hidden: torch.Tensor | None, scale: float,
    dtype: str, keys: int | None = None,
) -> Pairs:  # fmt: skip
    """Compute `Pairs` from rows of q and do and all of k and v, of one head or several. hidden: (rows, keys).

    keys: the number of keys that an implementation may sum, including hidden ones that are left out here.

    1. Scores, their exponentials and so p are computed twice, for the output and again for the gradients, from one
       logarithm of the sum: twice the variance of attention's. The errors of the sum, of its logarithm and of the
       rounded value are common to a row.
    2. dp is a sum over D. delta, a row's sum of do o, has the errors of o: from p, from its rounding to 16 bits, from
       the sum over the keys, and from the output's rounding. As a row's sum of p dp it has that of the logarithm too.
    3. In 16 bits p and ds are rounded to the inputs' type before they enter a product; dp may be too.
    4. Tensor cores truncate: scores, dp and o are too small. Numbers below the normal range may be 0.
    """
    u, depth, d, keys = unit_roundoff(working(dtype)), MMA_DEPTH.get(dtype), k.shape[-1], keys or k.shape[-2]
    scores = (q * scale) @ k.mT
    if hidden is not None:
        scores.masked_fill_(hidden, -math.inf)
    largest = scores.amax(dim=-1, keepdim=True)
    unseen = torch.zeros_like(largest, dtype=torch.bool) if hidden is None else hidden.all(dim=-1, keepdim=True)
    p = torch.softmax(scores, dim=-1).masked_fill_(unseen, 0.0)
    log_sum = (largest - p.amax(dim=-1, keepdim=True).log_()).masked_fill_(unseen, 0.0)  # the largest p is 1 / the sum
    largest.masked_fill_(unseen, 0.0)
    relative = exponential_variance(scores, (q * scale).square() @ k.square().mT, d, depth, dtype).mul_(2.0)
    relative.masked_fill_(exact := p == 0.0, 0.0)  # p is exactly 0, so it has no error

    dp = do @ v.mT
    if hidden is not None:
        dp.masked_fill_(hidden, 0.0)
    o, delta = p @ v, (p * dp).sum(dim=-1, keepdim=True)
    centred = dp - delta
    ds = p * centred

    squared = p.square()
    exponent = (squared * relative).sum(dim=-1, keepdim=True)
    exponent += sum_variance(torch.ones_like(delta), squared.sum(dim=-1, keepdim=True), keys, None, None, dtype)
    exponent += u**2 * (2.0 * (largest.square() + log_sum.square()) + LOG_ERROR**2 * (1.0 + (log_sum - largest) ** 2))
    p_variance = squared * relative
    dp_variance = sum_variance(dp, do.square() @ v.square().mT, d, depth, None, dtype)
    ds_variance = p_variance * centred.square() + squared * dp_variance
    o_variance = sum_variance(o, squared @ v.square(), keys, depth, None, dtype)
    if is_narrow(dtype):
        p_variance += rounding_variance(p, dtype, exact)
        ds_variance += rounding_variance(ds, dtype, exact, min(scale, 1.0)) + squared * rounding_variance(dp, dtype)
        o_variance += rounding_variance(o, dtype)
    delta_variance = (p_variance * centred.square()).sum(dim=-1, keepdim=True) + delta.square() * exponent
    delta_variance += (do.square() * o_variance).sum(dim=-1, keepdim=True)
    delta_variance += sum_variance(delta, (do * o).square().sum(dim=-1, keepdim=True), d, None, None, dtype)
    delta_variance += sum_variance(delta, (p * dp).square().sum(dim=-1, keepdim=True), keys, None, None, dtype)

    dot_truncation, key_truncation = truncation(d, depth), truncation(keys, depth)
    moved = (scores - (p * scores).sum(dim=-1, keepdim=True)).mul_(p)
    p_shift = moved.abs() * (u + dot_truncation)
    ds_shift = p_shift * centred.abs() + p * ((moved * dp).sum(dim=-1, keepdim=True).abs() * (u + dot_truncation))
    ds_shift += p * (dot_truncation * dp.abs() + key_truncation * (do * o).abs().sum(dim=-1, keepdim=True))
    p_shift += flushed(p, dtype)
    ds_shift += flushed(p, dtype) * centred.abs() + flushed(ds, dtype)
    return Pairs(p, ds, p_variance, ds_variance, exponent, delta_variance, p_shift, ds_shift)


@dataclass
class Sum:
    """A sum over pairs and the terms of its bound; (rows, D) each, or (heads, rows, D)."""

    value: torch.Tensor
    variance: torch.Tensor
    shift: torch.Tensor
    squares: torch.Tensor
    """Sum of the squares of the terms."""

    def __iadd__(self, other: Sum) -> Sum:
        for name in ("value", "variance", "shift", "squares"):
            getattr(self, name).add_(getattr(other, name))
        return self

    def add_to(self, rows: slice, other: Sum) -> None:
        for name in ("value", "variance", "shift", "squares"):
            getattr(self, name)[:, rows] += getattr(other, name)

    def __getitem__(self, place: int) -> Sum:
        """Return the sum of one of several heads."""
        return Sum(self.value[place], self.variance[place], self.shift[place], self.squares[place])

    def errors(self, terms: int, dtype: str, parts: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the systematic error and the variance of a sum of `terms` terms.

        parts: sums of squares of the parts of a group, each of which may be rounded to 16 bits before they are added.
        """
        depth = MMA_DEPTH.get(dtype)
        variance = self.variance + sum_variance(self.value, self.squares, terms, depth, None, dtype)
        if parts is not None and is_narrow(dtype):
            variance += parts * (unit_roundoff(dtype) ** 2 / 3.0)
        systematic = self.shift + sum_shift(self.value, terms, depth)
        systematic += self.value.abs() * (4.0 * unit_roundoff(working(dtype)))  # from the scale and products with it
        systematic += flushed(self.value, dtype)
        return systematic, variance

    def limit(self, terms: int, count: int, dtype: str, parts: torch.Tensor | None = None) -> torch.Tensor:
        """Return the bound of a sum of `terms` terms, one of `count` results; see `errors`."""
        systematic, variance = self.errors(terms, dtype, parts)
        return limit(systematic + variance.sqrt_() * deviations(count), self.value, dtype)

    def truth(
        self, begin: int, terms: int, count: int, rows: int, dtype: str, parts: torch.Tensor | None = None
    ) -> Truth:
        """Return the truth of this sum, which begins at `begin` in the joined results; see `errors`.

        count: results of all outputs. rows: all queries, whose errors are independent. In float32 the errors of the
        exponential may have one sign: averages have no narrower bound there.
        """
        bound = self.limit(terms, count, dtype, parts).reshape(-1)
        index = (slice(begin, begin + bound.numel()),)
        if not is_narrow(dtype):
            return Truth(index, self.value.reshape(-1), bound)
        systematic, variance = self.errors(terms, dtype, parts)
        at = sample((bound.numel(),), bound.device)
        noise = Noise(systematic.reshape(-1)[at], variance.reshape(-1)[at], rows)
        return Truth(index, self.value.reshape(-1), bound, noise)


def sum_over_keys(p_ds: Pairs, k: torch.Tensor, scale: float) -> Sum:
    """Return dq = scale ds k."""
    value = p_ds.ds @ k
    variance = p_ds.ds_variance @ k.square() + p_ds.exponent * value.square() + p_ds.delta * (p_ds.p @ k).square()
    squares = p_ds.ds.square() @ k.square()
    return Sum(value * scale, variance * scale**2, p_ds.ds_shift @ k.abs() * scale, squares * scale**2)


def sums_over_queries(p_ds: Pairs, q: torch.Tensor, do: torch.Tensor, scale: float) -> tuple[Sum, Sum]:
    """Return dk = scale ds^T q and dv = p^T do."""
    p_squared, ds_squared = p_ds.p.square(), p_ds.ds.square()
    variance = (p_ds.ds_variance + ds_squared * p_ds.exponent + p_squared * p_ds.delta).mT @ q.square()
    squares = ds_squared.mT @ q.square()
    dk = Sum(p_ds.ds.mT @ q * scale, variance * scale**2, p_ds.ds_shift.mT @ q.abs() * scale, squares * scale**2)
    variance = (p_ds.p_variance + p_squared * p_ds.exponent).mT @ do.square()
    return dk, Sum(p_ds.p.mT @ do, variance, p_ds.p_shift.mT @ do.abs(), p_squared.mT @ do.square())


class AttentionGrad(Attention):
    rank = 55
    group = "attention"
    name = "attention_grad"
    dtypes_beyond = (DOUBLE,)
    formula = "dQ, dK, dV = gradients of the sum of dO * O, where O = softmax(Q K^T / sqrt(D)) V; with the forward pass"
    dims = ("B", "H", "H_kv", "S_q", "S_k", "D")
    outputs = ("dq", "dk", "dv")
    options = (
        Option("causal", (False, True), "queries do not see later keys", every=True),
        Option(
            "window", ("none", "5", "64", "100"), "causal, and each query sees only so many keys up to its own",
            integers=True, beyond=True,
        ),
    )  # fmt: skip
    sweep = tuple((1, 16, 16, s, s, 64) for s in (16, 64, 256, 1024, 4096))
    untold: tuple[str, ...] = ("nan_causal", "infinity@3")
    large: ClassVar[tuple[TellingCase, ...]] = (
        TellingCase("large", (1, 2, 1, 24, 2056, 64)),
        TellingCase("many_queries", (1, 1, 1, 2056, 24, 64)),
    )
    ragged: ClassVar[tuple[Shape, ...]] = ((1, 2, 1, 33, 1, 64), (1, 1, 1, 130, 67, 128))
    families: ClassVar = {
        "normal": family.normal(),
        "sizes": family.sizes(*ragged),
        "empty": family.empty((1, 2, 1, 0, 5, 64), (1, 2, 1, 5, 0, 64), (0, 2, 1, 5, 5, 64)),
        "transposed": Family("stored as (B, S, H, D)", family.NORMALS, stored_bshd, shapes=(ODD,), options=CAUSAL),
        "strided": replace(family.strided_views(ODD), options=CAUSAL),
        "misaligned_rows": replace(family.misaligned_rows(ODD), options=CAUSAL),
        "nan": replace(family.nan((4, 1, 1, 10, 19, 64), values=one_nan), options=CAUSAL),
        "infinity": Family(
            "infinities in do, and no negative v: dv is infinite, and all other gradients that depend on them are NaN",
            infinite_gradient,
            shapes=(ODD,),
            options={"causal": (False,)},
        ),
        "minus_infinity_first": Family(
            "the first keys score minus infinity: no gradient but NaN, where 0 meets an infinite k",
            append_normal_gradient(minus_infinity(lambda count: slice(0, count // 2), overflow=True)),
            shapes=((1, 4, 2, 20, 70, 64),),
            options=CAUSAL,
        ),
        "large_logits": Family(
            "scores whose exponential overflows unless their maximum is subtracted",
            append_normal_gradient(numbers.per_operand(large_scores, large_scores, numbers.normals)),
            shapes=(ODD,),
        ),
        "below": Family(
            "scores far below 0, whose exponentials are 0", append_normal_gradient(far_below), shapes=(ODD,)
        ),
        "range": family.spread(ODD, 20, -20, 20, -20),
        "sm_scale": Family(
            f"sm_scale={SM_SCALE} instead of 1 / sqrt(D)",
            family.NORMALS,
            shapes=(ODD,),
            options=CAUSAL,
            arguments={"sm_scale": SM_SCALE},
        ),
        "window": Family(
            "sliding windows: shorter and longer than a tile, as long as one, and longer than the keys",
            family.NORMALS,
            shapes=((1, 2, 1, 150, 190, 64),),
            options=WINDOWS,
        ),
        "empty_rows": Family(
            "causal with more queries than keys: the first see no key, and have no gradient",
            family.NORMALS,
            shapes=((1, 2, 1, 130, 33, 64),),
            options=CAUSAL,
        ),
    }

    def default_cases(self, device_type: str) -> list[Case]:
        """Cases on a GPU: 16384 tokens and 2048 features in bfloat16; grouped heads in float16; small in float32."""
        if device_type != "cuda":
            return [
                self.case((1, 2, 1, 33, 40, 64), dtype, causal=causal) for dtype in DTYPES for causal in (False, True)
            ]
        plain = (4, 16, 16, 4096, 4096, 128)
        cases = [self.case(plain, "bfloat16", causal=causal) for causal in (False, True)]
        cases += [self.case((4, 32, 8, 4096, 4096, 64), "float16", causal=True)]
        return [*cases, self.case((2, 16, 16, 1024, 1024, 128), "float32", causal=True)]

    def operands(self, case: Case) -> tuple[Shape, ...]:
        q, k, v = super().operands(case)
        return (q, k, v, q)

    def second_case(self, case: Case) -> Case:
        return case

    def output_shapes(self, case: Case) -> tuple[Shape, ...]:
        return self.operands(case)[:3]

    def output_shape(self, case: Case) -> Shape:
        return outputs.flat_shape(self.output_shapes(case))

    def truth(self, inputs: tuple[torch.Tensor, ...], case: Case) -> Iterator[Truth]:
        b, h, h_kv, s_q, s_k, d = case.shape
        count, group = self.output_shape(case)[0], h // h_kv if h_kv else 0
        starts = outputs.starts(self.output_shapes(case))
        window = window_of(case) or max(s_q, s_k)

        at_once = self._key_heads_at_once(case)
        # Hidden keys are left out unless an input has an infinity or NaN, whose product with 0 is NaN.
        skips = case.option("causal") and all(bool(each.isfinite().all()) for each in inputs)
        for batch, first in product(range(b), range(0, h_kv, at_once)):
            key_heads = slice(first, min(first + at_once, h_kv))
            several = key_heads.stop - first
            key_sums = [empty_sum((several, s_k, d), inputs[0].device) for _ in range(2)]
            parts = [torch.zeros_like(total.value) for total in key_sums]
            for member in range(group):
                member_sums = [empty_sum((several, s_k, d), inputs[0].device) for _ in range(2)]
                query_sums = empty_sum((several, s_q, d), inputs[0].device)
                self._add_heads(inputs, case, skips, batch, key_heads, member, query_sums, member_sums)
                together = [query_sums] if group == 1 else [query_sums[place] for place in range(several)]
                for place, own in enumerate(together):
                    head = (first + place) * group + member
                    begin = starts[0] + (batch * h + head) * s_q * d
                    yield own.truth(begin, min(s_k, window), count, b * h * s_q, case.dtype)
                for total, part, mine in zip(key_sums, parts, member_sums, strict=True):
                    total += mine
                    part.addcmul_(mine.value, mine.value)
                del query_sums, together, own, member_sums, mine
            for output, total, part in zip((1, 2), key_sums, parts, strict=True):
                begin = starts[output] + (batch * h_kv + first) * s_k * d
                rows = b * min(h * s_q, h_kv * s_k)
                yield total.truth(begin, group * min(s_q, window), count, rows, case.dtype, part if group > 1 else None)

    def _key_heads_at_once(self, case: Case) -> int:
        """Return the number of key heads in one matrix product, with one query head for each."""
        return max(1, min(case["H_kv"], self._heads_at_once(case)))

    def _add_heads(
        self,
        inputs: tuple[torch.Tensor, ...],
        case: Case,
        skips: bool,
        batch: int,
        key_heads: slice,
        member: int,
        query_sums: Sum,
        key_sums: list[Sum],
    ) -> None:
        """Add the contributions of one query head of each group (`member`) to dq, dk and dv."""
        h, h_kv, s_q, s_k, d = case.shape[1:]
        if not (s_q and s_k and d):
            return
        group = h // h_kv
        heads = slice(key_heads.start * group + member, key_heads.stop * group, group)
        k, v = (each[batch, key_heads].double() for each in inputs[1:3])
        scale, window = self.scale(case), window_of(case)
        rows = self._rows(case)
        for start in range(0, s_q, rows):
            q, do = (each[batch, heads, start : start + rows].double() for each in (inputs[0], inputs[3]))
            unseen, keys = None, slice(0, s_k)  # keys that any of these queries sees
            if case.option("causal"):
                if skips:
                    last = max(1, min(s_k, start + q.shape[1] + s_k - s_q))
                    keys = slice(min(first_seen(start, s_k - s_q, window), last - 1), last)
                rows_seen = range(start, start + q.shape[1])
                unseen = hidden(rows_seen, range(keys.start, keys.stop), s_k - s_q, window, q.device)
            p_ds = pairs(q, k[:, keys], v[:, keys], do, unseen, scale, case.dtype, min(s_k, window or s_k))
            mine = sum_over_keys(p_ds, k[:, keys], scale)
            for name in ("value", "variance", "shift", "squares"):
                getattr(query_sums, name)[:, start : start + rows] = getattr(mine, name)
            for total, part in zip(key_sums, sums_over_queries(p_ds, q, do, scale), strict=True):
                total.add_to(keys, part)

    def flops(self, case: Case) -> int:
        """Count seven products of 2 D operations for each visible pair: two forward, five backward."""
        return super().flops(case) // 2 * 7

    def workspace_bytes(self, case: Case) -> int:
        s_q, s_k, d = case["S_q"], case["S_k"], case["D"]
        one = 20 * self._rows(case) * (s_k + d) + 22 * s_k * d + 8 * s_q * d
        return 8 * self._key_heads_at_once(case) * one


def empty_sum(shape: tuple[int, ...], device: torch.device) -> Sum:
    return Sum(*(torch.zeros(shape, dtype=torch.float64, device=device) for _ in range(4)))


OP = AttentionGrad()
