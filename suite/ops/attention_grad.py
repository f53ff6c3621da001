"""attention_grad: the gradients of attention's q, k and v, from the gradient of its output; forward and backward."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from typing import ClassVar

import torch

from suite.numerics.attention_grad import (
    Equal,
    Factors,
    Sum,
    empty_sum,
    equal_in_head,
    float8_factors,
    pairs,
    sum_over_keys,
    sums_over_queries,
)
from suite.numerics.float8 import FLOAT8, scales
from suite.numerics.formats import DOUBLE, DTYPES
from suite.numerics.masks import first_seen, hidden
from suite.numerics.noise import Noise, sample
from suite.numerics.repeats import marks
from suite.ops.attention import SM_SCALE, WINDOWS, Attention, window_of
from suite.problem import family, numbers, outputs
from suite.problem.attention_inputs import (
    BLIND,
    add_float8,
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


class AttentionGrad(Attention):
    rank = 55
    group = "attention"
    name = "attention_grad"
    dtypes_beyond = (FLOAT8, DOUBLE)
    formula = "dQ, dK, dV = gradients of the sum of dO * O, where O = softmax(Q K^T / sqrt(D)) V; with the forward pass"
    dims = ("B", "H", "H_kv", "S_q", "S_k", "D")
    outputs = ("dq", "dk", "dv")
    options = (
        Option("causal", (False, True), "queries do not see later keys", every=True),
        Option(
            "window", ("none", "5", "64", "100"), "causal, and each query sees only this many keys, up to its own",
            integers=True, beyond=True,
        ),
    )  # fmt: skip
    sweep = tuple((1, 16, 16, s, s, 64) for s in (16, 64, 256, 1024, 4096))
    # XLA on a CPU flushes subnormal probabilities, which count beside large logits.
    telling_left_out: tuple[str, ...] = (*BLIND, "large_logits_causal_odd", "nan_causal", "infinity@3")
    large: ClassVar[tuple[TellingCase, ...]] = (
        TellingCase("large", (1, 2, 1, 24, 2056, 64)),
        TellingCase("many_queries", (1, 1, 1, 2056, 24, 64)),
        TellingCase("many_heads", (17, 3860, 3860, 1, 1, 16)),
    )
    ragged: ClassVar[tuple[Shape, ...]] = ((1, 2, 1, 33, 1, 64), (1, 1, 1, 130, 67, 128))
    families: ClassVar = add_float8(
        {
            "normal": family.normal(),
            "sizes": family.sizes(*ragged),
            "empty": family.empty((1, 2, 1, 0, 5, 64), (1, 2, 1, 5, 0, 64), (0, 2, 1, 5, 5, 64)),
            "transposed": Family("stored as (B, S, H, D)", family.NORMALS, stored_bshd, shapes=(ODD,), options=CAUSAL),
            "strided": replace(family.strided_views(ODD), options=CAUSAL),
            "misaligned_rows": replace(family.misaligned_rows(ODD), options=CAUSAL),
            "nan": replace(family.nan((4, 1, 1, 10, 19, 64), values=one_nan), options=CAUSAL),
            "infinity": Family(
                "infinities in do, no negative v: dv is infinite, and other gradients that depend on them are NaN",
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
    )

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

    def make_inputs(self, case: Case, seed: int, device: torch.device) -> tuple[torch.Tensor, ...]:
        """Draw q, k, v and do; for float8 also their float32 scales, no two of which are near each other."""
        operands = super().make_inputs(case, seed, device)[:4]
        if case.dtype != FLOAT8:
            return operands
        larger = 4 if "large_logits" in case.inputs else 0
        powers = (-4 + larger, -8 + larger, -6, -10)
        drawn = (scales(1, power, seed + place, device) for place, power in enumerate(powers))
        return *operands, *(scale for (scale,) in drawn)

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
        factors = self.factors(inputs, case)
        query_marks, key_marks = marks(inputs[0], inputs[3]).view(b, h_kv, group, s_q), marks(*inputs[1:3])
        queries, keys = (each.unique().numel() for each in (query_marks, key_marks))  # errors of equal rows are equal

        at_once = self._key_heads_at_once(case)
        # Hidden keys are left out unless an input has an infinity or NaN, whose product with 0 is NaN.
        skips = case.option("causal") and all(bool(widened(each).isfinite().all()) for each in inputs[:4])
        for batch, first in product(range(b), range(0, h_kv, at_once)):
            key_heads = slice(first, min(first + at_once, h_kv))
            several = key_heads.stop - first
            do = inputs[3][batch].unflatten(0, (h_kv, group))[key_heads]
            equal = equal_in_head(
                query_marks[batch, key_heads], key_marks[batch, key_heads], inputs[2][batch, key_heads], do
            )
            key_sums = [empty_sum((several, s_k, d), equal.queries) for _ in range(2)]
            parts = [torch.zeros_like(total.value) for total in key_sums]
            for member in range(group):
                member_sums = [empty_sum((several, s_k, d), equal.queries) for _ in range(2)]
                query_sums = empty_sum((several, s_q, d), equal.keys)
                self._add_heads(inputs, case, factors, equal, skips, batch, key_heads, member, query_sums, member_sums)
                together = [query_sums] if group == 1 else [query_sums[place] for place in range(several)]
                for place, own in enumerate(together):
                    head = (first + place) * group + member
                    begin = starts[0] + (batch * h + head) * s_q * d
                    yield truth_of(own, begin, min(s_k, window), count, queries, case.dtype)
                for total, part, mine in zip(key_sums, parts, member_sums, strict=True):
                    total += mine
                    part.addcmul_(mine.value, mine.value)
                del query_sums, together, own, member_sums, mine
            for output, total, part in zip((1, 2), key_sums, parts, strict=True):
                begin = starts[output] + (batch * h_kv + first) * s_k * d
                terms, apart = group * min(s_q, window), part if group > 1 else None
                yield truth_of(total, begin, terms, count, min(queries, keys), case.dtype, apart)

    def factors(self, inputs: tuple[torch.Tensor, ...], case: Case) -> Factors | None:
        """Return the `Factors` of float8; None for other types."""
        if case.dtype != FLOAT8:
            return None
        return float8_factors(inputs[2], inputs[3], float(inputs[6]), float(inputs[7]))

    def _key_heads_at_once(self, case: Case) -> int:
        """Return the number of key heads in one matrix product, with one query head for each."""
        return max(1, min(case["H_kv"], self._heads_at_once(case)))

    def _add_heads(
        self,
        inputs: tuple[torch.Tensor, ...],
        case: Case,
        factors: Factors | None,
        equal: Equal,
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
        given = [each.double() for each in inputs[4:]] or [1.0] * 4
        k, v = (inputs[place][batch, key_heads].double() * given[place] for place in (1, 2))
        scale, window = self.scale(case), window_of(case)
        rows = self._rows(case)
        for start in range(0, s_q, rows):
            q, do = (inputs[place][batch, heads, start : start + rows].double() * given[place] for place in (0, 3))
            unseen, keys = None, slice(0, s_k)  # keys that any of these queries sees
            if case.option("causal"):
                if skips:
                    last = max(1, min(s_k, start + q.shape[1] + s_k - s_q))
                    keys = slice(min(first_seen(start, s_k - s_q, window), last - 1), last)
                rows_seen = range(start, start + q.shape[1])
                unseen = hidden(rows_seen, range(keys.start, keys.stop), s_k - s_q, window, q.device)
            terms = min(s_k, window or s_k)
            p_ds = pairs(q, k[:, keys], v[:, keys], do, unseen, scale, case.dtype, terms, factors, equal)
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
        arrays = 30 if case.dtype == FLOAT8 else 20
        one = arrays * self._rows(case) * (s_k + d) + 22 * s_k * d + 8 * s_q * d
        widened_once = 4 * max(map(math.prod, self.operands(case))) if case.dtype == FLOAT8 else 0
        return 8 * self._key_heads_at_once(case) * one + widened_once


def widened(x: torch.Tensor) -> torch.Tensor:
    """Return x in a type in which torch tests numbers."""
    return x.half() if x.dtype == torch.float8_e4m3fn else x


def truth_of(
    total: Sum, begin: int, terms: int, count: int, rows: int, dtype: str, parts: torch.Tensor | None = None
) -> Truth:
    """Return the truth of a sum, which begins at `begin` in the joined results; see `Sum.errors`.

    count: results of all outputs. rows: those with independent errors. In float32 the errors of the
    exponential may have one sign, and float8's sums lose in one direction: averages have no narrower bound there.
    """
    bound = total.limit(terms, count, dtype, parts).reshape(-1)
    index = (slice(begin, begin + bound.numel()),)
    if dtype not in ("float16", "bfloat16"):
        return Truth(index, total.value.reshape(-1), bound)
    systematic, variance = total.errors(terms, dtype, parts)
    at = sample((bound.numel(),), bound.device)
    noise = Noise(systematic.reshape(-1)[at], variance.reshape(-1)[at], rows)
    return Truth(index, total.value.reshape(-1), bound, noise)


OP = AttentionGrad()
