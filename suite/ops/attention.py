"""attention: O = softmax(Q K^T / sqrt(D)) V, with grouped key/value heads and a causal mask aligned to the last key."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import product
from typing import Any, ClassVar

import torch

from suite.core.errors import UsageError
from suite.numerics.attention import attention_errors
from suite.numerics.bounds import deviations, limit
from suite.numerics.float8 import FLOAT8, scales
from suite.numerics.formats import DOUBLE, DTYPES, OUTPUT_DTYPES
from suite.numerics.masks import first_seen, hidden, pairs_up_to
from suite.numerics.noise import Noise, sample
from suite.problem import blocks, family, numbers
from suite.problem.attention_inputs import (
    BLIND,
    add_float8,
    far_below,
    large_scores,
    large_values,
    minus_infinity,
    pairs_that_cancel,
    shifted,
    single_element,
    stored_bshd,
)
from suite.problem.case import Case
from suite.problem.family import Family
from suite.problem.operation import Operation
from suite.problem.option import Option, Value
from suite.problem.shape import Shape
from suite.problem.telling_case import TellingCase
from suite.problem.truth import Truth

ODD = (3, 2, 1, 50, 70, 64)
"""Shape of most families: grouped heads, a batch entry for each of q, k and v, sizes that are multiples of no tile."""
FEW_KEYS = (3, 2, 1, 10, 19, 64)
"""The same shape with fewer keys, for families that kernels compute key by key."""
WINDOWS = {"causal": (True,), "window": ("1", "40", "64", "300")}
"""Options of the family with windows."""
SM_SCALE = 0.3125
"""Scale of the scores in the family that passes one. It is exact in every type, so all implementations use the same."""


def heads_of_keys(operand: torch.Tensor, heads: slice, group: int) -> torch.Tensor:
    """Return the keys or values (H_kv, S_k, D) of query heads in float64; `group` query heads read one of them."""
    first = heads.start // group
    found = operand[first : (heads.stop - 1) // group + 1].double()
    if group == 1:
        return found
    return found[[each // group - first for each in range(heads.start, heads.stop)]]


def window_of(case: Case) -> int | None:
    """Return the number of keys that a query of the case sees, up to its own; None without a window."""
    return None if (value := case.option("window")) is None else int(value)


def rows_truth(
    index: tuple[slice, ...],
    value: torch.Tensor,
    systematic: torch.Tensor,
    variance: torch.Tensor,
    rows: int,
    dtype: str,
) -> Truth:
    """Return the truth of some of the output's `rows` rows, with the bound that follows from their errors.

    In 16 bits, the weights' roundings are those of a row, so rows are independent. In float32 the errors of the
    exponential may have one sign, and float8's sums lose in one direction: averages have no narrower bound there.
    """
    errors = systematic + variance.sqrt() * deviations(rows * value.shape[-1])
    bound = limit(errors, value, OUTPUT_DTYPES.get(dtype, dtype))
    if dtype not in ("float16", "bfloat16"):
        return Truth(index, value, bound)
    at = sample(tuple(value.shape), value.device)
    return Truth(index, value, bound, Noise(systematic[at], variance[at], rows))


def attended(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    start: int,
    s_q: int,
    *,
    causal: bool,
    dtype: str,
    finite_v: bool,
    window: int | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the exact output rows of the scaled `q`, which begin at query `start` of `s_q`, and their errors.

    The errors are the systematic ones and the variances, in the arithmetic of `dtype`. All tensors are float64, of one
    head or several.

    finite_v: `v` has no NaN and no infinity. Testing this here would wait for the device. window: keys up to its own
    that a query sees, if there is a causal mask.
    """
    s_k, d = k.shape[-2:]
    last_row = start + q.shape[-2]
    seen = max(0, min(s_k, last_row + s_k - s_q)) if causal else s_k  # keys up to the last visible
    if seen == 0 or d == 0:
        return torch.zeros_like(q), torch.zeros_like(q), torch.zeros_like(q)
    keys = range(first_seen(start, s_k - s_q, window), seen)
    k, v = k[..., keys.start : seen, :], v[..., keys.start : seen, :]
    scores = q @ k.mT
    unseen = None
    if causal:
        unseen = hidden(range(start, last_row), keys, s_k - s_q, window, q.device)
        scores.masked_fill_(unseen, -math.inf)
    p = torch.softmax(scores, dim=-1)
    if unseen is not None and start < s_q - s_k:
        p.masked_fill_(unseen, 0.0)  # a query that sees no key gives zeros
    # NaN and infinities in V count only for queries that see them; a product would multiply them by 0 and give NaN.
    finite = v if finite_v else v.nan_to_num(0.0, 0.0, 0.0)
    value = p @ finite
    systematic, variance = attention_errors(
        value, p, scores, q.square() @ k.square().mT, finite, head_dim=d, terms=min(s_k, window or s_k), dtype=dtype
    )
    if finite_v:
        return value, systematic, variance
    odd = ~v.isfinite()
    for key in odd.any(dim=1).nonzero().flatten().tolist():
        product = p[:, key, None] * torch.where(odd[key], v[key], 0.0)
        value += product if unseen is None else product.masked_fill_(unseen[:, key, None], 0.0)
    return value, systematic, variance


class Attention(Operation):
    rank = 50
    group = "attention"
    name = "attention"
    formula = "O[b, h, i] = softmax over visible j of (Q[b, h, i] . K[b, h_kv, j] / sqrt(D)) times V[b, h_kv, j]"
    dims = ("B", "H", "H_kv", "S_q", "S_k", "D")
    options = (
        Option("causal", (False, True), "queries do not see later keys", every=True),
        Option("window", ("none", "5", "64", "100"), "causal, and each query sees only this many keys, up to its own",
               integers=True, beyond=True),
    )  # fmt: skip
    sweep = tuple((1, 16, 16, s, s, 64) for s in (16, 64, 256, 1024, 4096))
    telling: ClassVar[tuple[TellingCase, ...]] = (
        TellingCase("one_feature", (1, 2, 1, 31, 33, 1), first=False),
        TellingCase("two_queries", (1, 2, 1, 2, 33, 64), options={"causal": True}, first=False),
        TellingCase("whole_tiles", (1, 2, 1, 192, 192, 64), options={"causal": True}, first=False),
        TellingCase("window_blind", (1, 2, 1, 190, 150, 64), options={"window": "40"}, first=False),
        TellingCase("window_tiles", (1, 2, 1, 400, 400, 64), options={"window": "100"}, first=False),
        TellingCase("window_of_one_query", (1, 2, 1, 1, 300, 64), options={"window": "70"}, first=False),
        TellingCase("long_window", (1, 1, 1, 20, 600, 64), options={"window": "290"}, first=False),
        TellingCase("67_features", (1, 2, 1, 31, 33, 67), first=False),
        TellingCase("259_features", (1, 2, 1, 5, 7, 259), first=False),
    )
    telling_left_out: tuple[str, ...] = (*BLIND, "nan_causal", "infinity", "subnormal", "subnormal@", "window_nan")
    large: ClassVar[tuple[TellingCase, ...]] = (
        TellingCase("large", (1, 2, 1, 40, 8200, 64)),
        TellingCase("many_queries", (1, 1, 1, 4104, 40, 64)),
        TellingCase("many_heads", (17, 3860, 3860, 1, 1, 32)),
    )
    ragged: ClassVar[tuple[Shape, ...]] = (
        (1, 1, 1, 1, 1, 64),
        (1, 2, 1, 1, 77, 64),
        (2, 2, 2, 65, 65, 64),
        (1, 4, 2, 33, 130, 64),
        (1, 2, 1, 130, 33, 64),
        (1, 1, 1, 50, 127, 128),
        (1, 1, 1, 40, 40, 256),
    )
    dtypes_beyond: tuple[str, ...] = (FLOAT8, DOUBLE)
    families: ClassVar = add_float8(
        {
            "normal": family.normal(),
            "sizes": family.sizes(*ragged),
            "long_thin": family.long_thin((1, 1, 1, 1, 1031, 64), (1, 1, 1, 515, 1, 64)),
            "empty": family.empty((1, 2, 1, 0, 5, 64), (1, 2, 1, 5, 0, 64), (0, 2, 1, 5, 5, 64)),
            "transposed": Family(
                "stored as (B, S, H, D)", family.NORMALS, stored_bshd, shapes=((2, 4, 2, 33, 65, 64),)
            ),
            "strided": family.strided_views(ODD),
            "offset": family.offset(ODD),
            "misaligned_rows": family.misaligned_rows(ODD),
            "broadcast": family.broadcast((2, 4, 2, 33, 65, 64)),
            "subnormal": family.subnormal(
                ODD, values=numbers.per_operand(numbers.normals, numbers.normals, numbers.subnormals)
            ),
            "largest": family.large(ODD, values=numbers.per_operand(numbers.normals, numbers.normals, large_values)),
            "signed_zero": family.signed_zero(ODD),
            "infinity": family.infinity(FEW_KEYS, values=single_element(math.inf, 1, 2)),
            "nan": family.nan(FEW_KEYS, values=single_element(math.nan, 0, 1, 2)),
            "cancellation": family.cancellation(ODD, values=pairs_that_cancel),
            "minus_infinity_first": Family(
                "the first half of the keys scores minus infinity",
                minus_infinity(lambda count: slice(0, count // 2), overflow=True),
                shapes=((1, 3, 3, 7, 600, 64),),
            ),
            "minus_infinity_last": Family(
                "the last half of the keys scores minus infinity",
                minus_infinity(lambda count: slice(count // 2, count), overflow=True),
                shapes=((1, 3, 3, 7, 600, 64),),
            ),
            "minus_infinity_all": Family(
                "all keys of a head score minus infinity: NaN, and zeros for a query that sees no key",
                minus_infinity(lambda count: slice(0, count), overflow=False),
                shapes=((1, 4, 2, 50, 40, 64),),
            ),
            "large_logits": Family(
                "scores whose exponential overflows unless their maximum is subtracted",
                numbers.per_operand(large_scores, large_scores, numbers.normals),
                shapes=(ODD, (1, 1, 1, 40, 40, 256)),
            ),
            "below": Family("scores far below 0, whose exponentials are 0", far_below, shapes=(ODD,)),
            "range": family.spread(ODD, 20, -20, 20),
            "shifted": Family(
                "scores with a common part and values with a mean, which show scores or sums in 16 bits",
                shifted,
                shapes=((1, 2, 1, 64, 512, 64), (1, 2, 2, 50, 127, 128)),
            ),
            "sm_scale": Family(
                f"sm_scale={SM_SCALE} instead of 1 / sqrt(D)",
                family.NORMALS,
                shapes=(ODD, ragged[3]),
                arguments={"sm_scale": SM_SCALE},
            ),
            "empty_rows": Family(
                "causal with more queries than keys: the first see no key, and give zeros",
                family.NORMALS,
                shapes=((1, 2, 1, 130, 33, 64), (1, 2, 2, 77, 1, 64)),
                options={"causal": (True,)},
            ),
            "window": Family(
                "sliding windows: shorter and longer than a tile, as long as one, and longer than the keys",
                family.NORMALS,
                shapes=((1, 2, 1, 150, 190, 64),),
                options=WINDOWS,
            ),
            "window_nan": Family(
                "one NaN, which windows hide from some queries",
                single_element(math.nan, 0, 1, 2),
                shapes=(FEW_KEYS,),
                options={"causal": (True,), "window": ("5",)},
            ),
            "huge": family.huge((1, 32, 32, 2**19 + 1, 64, 128), options={"causal": (False,)}),
        }
    )

    def default_cases(self, device_type: str) -> list[Case]:
        """Cases on a GPU: FlashAttention's 16384 tokens and 2048 features; then float16, grouped, ragged, float32."""
        if device_type != "cuda":
            return [
                self.case((1, 2, 1, 100, 100, 64), dtype, causal=causal) for dtype in DTYPES for causal in (False, True)
            ]
        plain = [(4, 2048 // d, 2048 // d, 4096, 4096, d) for d in (64, 128, 256)]
        cases = [self.case(shape, "bfloat16", causal=causal) for shape in plain[:2] for causal in (False, True)]
        cases += [self.case(plain[1], "float16", causal=False), self.case(plain[2], "bfloat16", causal=False)]
        cases += [self.case((4, 32, 8, 4096, 4096, 128), "bfloat16", causal=True)]
        cases += [self.case((1, 16, 16, 3000, 3000, 128), "bfloat16", causal=True)]
        cases += [self.case((2, 16, 16, 1024, 1024, 128), "float32", causal=True)]
        return cases

    def validate(self, dims: Mapping[str, int]) -> None:
        if dims["H"] % dims["H_kv"] if dims["H_kv"] else dims["H"]:
            raise UsageError(f"--shape: H={dims['H']} must be a multiple of H_kv={dims['H_kv']}")

    def covered_sizes(self) -> dict[str, tuple[int, ...]]:
        """Return sizes with the queries' heads as key heads times `group`."""
        sequence = (1, 31, 64, 193, 1024)
        return {"B": (1, 3), "H_kv": (1, 3), "group": (1, 2), "S_q": sequence, "S_k": sequence, "D": (128, 64)}

    def shape_of_sizes(self, sizes: Mapping[str, int]) -> Shape:
        h_kv = sizes["H_kv"]
        return (sizes["B"], h_kv * sizes["group"], h_kv, sizes["S_q"], sizes["S_k"], sizes["D"])

    def operands(self, case: Case) -> tuple[Shape, ...]:
        b, h, h_kv, s_q, s_k, d = case.shape
        return ((b, h, s_q, d), (b, h_kv, s_k, d), (b, h_kv, s_k, d))

    def random_shape(self, size: Callable[[], int]) -> Shape:
        h_kv = 1 + size() % 3
        return (size() % 3, h_kv * (1 + size() % 2), h_kv, size(), size(), 64 * (1 + size() % 2))

    def precisions(self, dtype: str) -> tuple[str, ...]:
        return ("fast",) if dtype == FLOAT8 else ("ieee",)

    def make_inputs(self, case: Case, seed: int, device: torch.device) -> tuple[torch.Tensor, ...]:
        """Draw q, k and v; for float8 also their float32 scales, which bring the scaled numbers near deviation 1."""
        operands = super().make_inputs(case, seed, device)
        if case.dtype != FLOAT8:
            return operands
        power = -2 if "large_logits" in case.inputs else -6
        return *operands, *scales(2, power, seed, device), *scales(1, -6, seed + 1, device)

    def second_case(self, case: Case) -> Case:
        by_shape = case.inputs in ("normal", "sizes", "long_thin") and case.dtype != FLOAT8
        return replace(case, inputs="shifted") if by_shape else case

    def case(
        self,
        shape: Shape,
        dtype: str | None = None,
        precision: str | None = None,
        *,
        inputs: str = "normal",
        **options: Value | None,
    ) -> Case:
        """Make a case as `Operation.case` does. A window ends at a query's own key, so it makes the case causal."""
        if options.get("window", "none") not in (None, "none"):
            options["causal"] = True
        return super().case(shape, dtype, precision, inputs=inputs, **options)

    def arguments(self, case: Case) -> dict[str, Any]:
        """Return the keyword arguments of the call. Without a window there is no argument of that name."""
        window = window_of(case)
        sliding = {} if window is None else {"window": window}
        return {"causal": case.option("causal", False), **sliding, **self.family(case.inputs).arguments}

    def scale(self, case: Case) -> float:
        return float(self.arguments(case).get("sm_scale", 1.0 / math.sqrt(max(case["D"], 1))))

    def truth(self, inputs: tuple[torch.Tensor, ...], case: Case) -> Iterator[Truth]:
        b, h, h_kv, s_q, _, d = case.shape
        rows, together = self._rows(case), self._heads(case)
        scale_q, scale_k, scale_v = (each.double() for each in inputs[3:]) if inputs[3:] else (1.0, 1.0, 1.0)
        finite_v = bool((inputs[2] if case.dtype != FLOAT8 else inputs[2].half()).isfinite().all())
        at_once = self._heads_at_once(case) if finite_v else 1
        for batch, first in product(range(b), range(0, h, together)):
            heads = slice(first, min(first + together, h))
            shape = (1, heads.stop - first, s_q, d)
            value, systematic, variance = (
                torch.empty(shape, dtype=torch.float64, device=inputs[0].device) for _ in range(3)
            )
            for head in range(first, heads.stop, at_once):
                several = slice(head, min(head + at_once, heads.stop))
                k, v = (
                    heads_of_keys(operand[batch], several, h // h_kv) * scale
                    for operand, scale in ((inputs[1], scale_k), (inputs[2], scale_v))
                )
                for start in range(0, s_q, rows):
                    q = inputs[0][batch, several, start : start + rows].double() * scale_q * self.scale(case)
                    operands = (q, k, v) if at_once > 1 else (q[0], k[0], v[0])
                    at = (0, slice(head - first, several.stop - first), slice(start, start + rows))
                    value[at], systematic[at], variance[at] = attended(
                        *operands, start, s_q, causal=case.option("causal", False), dtype=case.dtype,
                        finite_v=finite_v, window=window_of(case),
                    )  # fmt: skip
            index = (slice(batch, batch + 1), heads, slice(0, s_q), slice(0, d))
            yield rows_truth(index, value, systematic, variance, b * h * s_q, case.dtype)
            del value, systematic, variance

    def _heads(self, case: Case) -> int:
        """Return the number of heads judged together, which fill one block of the output."""
        return max(1, min(case["H"], blocks.rows_per_block(case["S_q"] * case["D"])))

    def _rows(self, case: Case) -> int:
        """Return the number of queries per step. The bound needs eight arrays of their scores, each half a block.

        With a mask they are a quarter, since keys that none of the queries sees are left out.
        """
        share = 4 if case.option("causal") else 2
        return max(1, min(case["S_q"], blocks.rows_per_block(case["S_k"], share=share)))

    def _heads_at_once(self, case: Case) -> int:
        """Return the number of heads in one matrix product, if all queries of a head are fewer than `_rows` allows."""
        queries = blocks.rows_per_block(case["S_k"], share=4 if case.option("causal") else 2)
        keys = blocks.rows_per_block(case["S_k"] * case["D"])
        return max(1, min(case["H"], self._heads(case), queries // max(1, case["S_q"]), keys))

    def output_shape(self, case: Case) -> Shape:
        return (case["B"], case["H"], case["S_q"], case["D"])

    def visible_pairs(self, case: Case) -> int:
        """Return the number of pairs of a query and a visible key in one head."""
        s_q, s_k = case["S_q"], case["S_k"]
        if not case.option("causal"):
            return s_q * s_k
        before = 0 if (window := window_of(case)) is None else pairs_up_to(s_q, s_k - s_q - window)
        return pairs_up_to(s_q, s_k - s_q) - before

    def flops(self, case: Case) -> int:
        """Count two products of 2 D operations for each visible pair."""
        return 4 * case["B"] * case["H"] * case["D"] * self.visible_pairs(case)

    def bytes(self, case: Case) -> int:
        """Return the least memory traffic. Keys and values before every window are not read."""
        unseen = first_seen(0, case["S_k"] - case["S_q"], window_of(case)) / max(case["S_k"], 1)
        read = sum(map(self.family(case.inputs).stored, self.operands(case)[1:3], (1, 2)))
        return super().bytes(case) - int(read * case.element_bytes * unseen)

    def workspace_bytes(self, case: Case) -> int:
        s_q, s_k, d = case["S_q"], case["S_k"], case["D"]
        judged = 10 * self._heads(case) * s_q * d  # value, limit, and the temporaries of judging
        at_once = self._heads_at_once(case)
        return 8 * (at_once * (8 * self._rows(case) * (s_k + d) + 4 * s_k * d) + judged)


OP = Attention()
