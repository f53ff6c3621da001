"""paged_attention: attention of a few new tokens of each sequence over keys and values in pages of a cache."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, ClassVar

import torch

from suite.core.errors import UsageError
from suite.core.integers import cdiv
from suite.numerics.float8 import FLOAT8, scales
from suite.numerics.formats import DTYPES, MAX_FINITE, element_bytes
from suite.ops.attention import SM_SCALE, attended, heads_of_keys, rows_truth
from suite.problem import blocks, family, numbers
from suite.problem.attention_inputs import far_below, large_scores, large_values, shifted
from suite.problem.case import Case
from suite.problem.family import Family
from suite.problem.operation import Operation
from suite.problem.option import Option
from suite.problem.shape import Shape
from suite.problem.telling_case import TellingCase
from suite.problem.truth import Truth

ODD = (3, 4, 2, 2, 70, 64, 16)
"""Shape of most families: grouped heads, two queries, and a last page that is not full."""
DECODE = (3, 4, 2, 1, 37, 64, 16)
"""One query, which sees every key."""


UNUSED, UNUSED_NAN = 64.0, "unused_nan"
"""Factor of the numbers in slots without a token; the family that has NaN there."""
POWER = 6
"""Normal numbers are multiplied by 2^POWER to use the range of float8. The scales undo it."""


def pages_of(case: Case) -> int:
    """Return the number of pages of the longest sequence."""
    return cdiv(case["S_k"], case["page"])


def draw_table(case: Case, source: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Draw the pages and the length of each sequence, int32. Pages are in random order.

    One page belongs to no sequence. Entries of the table beyond a sequence's pages name it. With ragged lengths one
    sequence has S_k keys, the others from 0 to S_k.
    """
    b, count, device = case["B"], pages_of(case), source.device
    order = torch.randperm(b * count + 1, generator=source, device=device)
    lengths = torch.full((b,), case["S_k"], dtype=torch.int64, device=device)
    if case.option("lengths") == "ragged" and b:
        longest = numbers.index_below(b, source)
        lengths = torch.randint(case["S_k"] + 1, (b,), generator=source, device=device)
        lengths[longest] = case["S_k"]
    used = torch.arange(count, device=device) * case["page"] < lengths[:, None]
    return torch.where(used, order[1:].view(b, count), order[0]).int(), lengths.int()


def slots_of(pages: torch.Tensor, table: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
    """Return which slots of a cache hold one of the first `tokens` tokens of a sequence; (pages, slots) bool."""
    _, size, *_ = pages.shape
    slots = torch.arange(table.shape[1] * size, device=pages.device)
    sequence, slot = (slots < tokens[:, None]).nonzero(as_tuple=True)
    held = torch.zeros(pages.shape[:2], dtype=torch.bool, device=pages.device)
    held[table[sequence, slot // size].long(), slot % size] = True
    return held


def with_unused(pages: torch.Tensor, held: torch.Tensor, factor: float) -> torch.Tensor:
    """Multiply by `factor` what a cache holds in slots without a token."""
    return torch.where(held[:, :, None, None], pages, pages * factor)


def make_finite(pages: torch.Tensor, places: torch.Tensor) -> None:
    """Replace NaN and infinities in some slots by 0."""
    pages[places] = pages[places].nan_to_num(0.0, 0.0, 0.0)


def one_nan_a_page(shape: Shape, case: Case, source: torch.Generator) -> torch.Tensor:
    """Draw normal numbers with a NaN in each page: one alone may be in a slot without a token."""
    drawn = numbers.normals(shape, case, source)
    for page in drawn:
        numbers.put(page, math.nan, tuple(numbers.index_below(size, source) for size in page.shape))
    return drawn


def in_float8(x: torch.Tensor) -> torch.Tensor:
    """Multiply normal numbers by 2^POWER, and round them to float8."""
    most = MAX_FINITE[FLOAT8]
    return (x.float() * 2.0**POWER).clamp(-most, most).to(getattr(torch, FLOAT8))


def tokens(pages: torch.Tensor, table: torch.Tensor, length: int) -> torch.Tensor:
    """Return the keys or values of a sequence, (H_kv, length, D)."""
    return pages[table.long()].flatten(0, 1)[:length].transpose(0, 1)


class PagedAttention(Operation):
    rank = 53
    group = "caches"
    name = "paged_attention"
    formula = (
        "O[b, i, h] = softmax over j <= i + lengths[b] - S_q of (Q[b, i, h] . K[b, j, h_kv] / sqrt(D)) times "
        "V[b, j, h_kv], where key j is in page table[b, j // page]"
    )
    dims = ("B", "H", "H_kv", "S_q", "S_k", "D", "page")
    options = (
        Option("lengths", ("equal", "ragged"), "keys of each sequence: S_k, or from 0 to S_k"),
        Option("kv", ("as_q", "float8_e4m3fn"), "type of keys and values; float8 adds a scale for each of the two"),
    )
    sweep = tuple((32, 8, 2, 1, s, 64, 16) for s in (16, 64, 256, 1024, 4096))
    telling: ClassVar[tuple[TellingCase, ...]] = (
        TellingCase("one_slot", (3, 4, 2, 2, 33, 64, 1), options={"lengths": "ragged"}),
        TellingCase("many_sequences", (67, 2, 1, 1, 20, 64, 16), options={"lengths": "ragged"}, first=False),
        TellingCase("1024_pages", (3, 2, 1, 1, 341, 64, 1), first=False),
        TellingCase("one_feature", (3, 4, 2, 2, 33, 1, 16), first=False),
        TellingCase("67_features", (3, 4, 2, 2, 33, 67, 16), first=False),
    )
    # In 16 bits torch gives 0 where all scores are minus infinity. The table and the lengths are integers.
    telling_left_out: tuple[str, ...] = (
        "subnormal@", "infinity@1",
        *(f"{kind}@{i}" for kind in ("nan", "infinity") for i in (3, 4)),
    )  # fmt: skip
    large: ClassVar[tuple[TellingCase, ...]] = (
        TellingCase("large", (1, 2, 1, 1, 8200, 64, 16)),
        TellingCase("many_pages", (1, 1, 1, 1, 65_800, 64, 1)),
    )
    ragged: ClassVar[tuple[Shape, ...]] = (
        (1, 1, 1, 1, 1, 64, 16),
        (2, 2, 2, 1, 77, 64, 1),
        (2, 4, 1, 3, 130, 128, 64),
        (1, 2, 1, 8, 5, 64, 16),
    )
    families: ClassVar = {
        "normal": family.normal(),
        "sizes": family.sizes(*ragged),
        "ragged": Family(
            "sequences of different lengths", family.NORMALS, shapes=(ODD, DECODE), options={"lengths": ("ragged",)}
        ),
        "float8": Family(
            "keys and values in float8 with a scale each",
            family.NORMALS,
            shapes=(ODD, DECODE),
            options={"kv": (FLOAT8,), "lengths": ("equal", "ragged")},
        ),
        UNUSED_NAN: Family(
            "NaN in slots without a token", family.NORMALS, shapes=(ODD,), options={"lengths": ("ragged",)}
        ),
        "long_thin": family.long_thin((1, 1, 1, 1, 1031, 64, 16)),
        "empty": family.empty((2, 2, 1, 0, 5, 64, 16), (2, 2, 1, 1, 0, 64, 16), (0, 2, 1, 1, 5, 64, 16)),
        "strided": family.strided_views(ODD),
        "offset": family.offset(ODD),
        "misaligned_rows": family.misaligned_rows(ODD),
        "broadcast": family.broadcast(ODD),
        "largest": family.large(DECODE, values=numbers.per_operand(numbers.normals, numbers.normals, large_values)),
        "signed_zero": family.signed_zero(ODD),
        "infinity": family.infinity(
            DECODE, values=numbers.per_operand(numbers.normals, numbers.normals, numbers.some_infinite)
        ),
        "nan": Family(
            "NaN in one place of q, in one of the keys, and in one of each page of values",
            numbers.per_operand(numbers.one_nan, numbers.one_nan, one_nan_a_page),
            shapes=(DECODE,),
        ),
        "large_logits": Family(
            "scores whose exponential overflows unless their maximum is subtracted",
            numbers.per_operand(large_scores, large_scores, numbers.normals),
            shapes=(ODD,),
        ),
        "below": Family("scores far below 0, whose exponentials are 0", far_below, shapes=(ODD,)),
        "range": family.spread(ODD, 20, -20, 20),
        "shifted": Family(
            "scores with a common part and values with a mean, which show scores or sums in 16 bits",
            shifted,
            shapes=((1, 2, 1, 2, 512, 64, 16), (1, 2, 2, 1, 127, 128, 16)),
        ),
        "sm_scale": Family(
            f"sm_scale={SM_SCALE} instead of 1 / sqrt(D)",
            family.NORMALS,
            shapes=(ODD,),
            arguments={"sm_scale": SM_SCALE},
        ),
        "empty_rows": Family(
            "fewer keys than queries: the first queries see no key, and give zeros",
            family.NORMALS,
            shapes=((2, 2, 1, 8, 3, 64, 16),),
        ),
    }

    def family(self, inputs: str) -> Family:
        """Return the family with a table and lengths beside its numbers, and large ones in slots without a token."""
        found, unused = super().family(inputs), math.nan if UNUSED_NAN in inputs.split("+") else UNUSED

        def values(shapes: tuple[Shape, ...], case: Case, source: torch.Generator) -> tuple[torch.Tensor, ...]:
            q, k_pages, v_pages = found.values(shapes[:3], case, source)
            table, lengths = draw_table(case, source)
            held, seen = (slots_of(k_pages, table, tokens) for tokens in (lengths, lengths - case["S_q"] + 1))
            make_finite(v_pages, held & ~seen)  # where a query has the weight 0, whose product with NaN is NaN
            k_pages, v_pages = (with_unused(pages, held, unused) for pages in (k_pages, v_pages))
            if self.kv_dtype(case) == FLOAT8:
                k_pages, v_pages = in_float8(k_pages), in_float8(v_pages)
            return q, k_pages, v_pages, table, lengths

        return replace(found, values=values)

    def default_cases(self, device_type: str) -> list[Case]:
        """Cases on a GPU: 64 sequences of Llama 3 8B with 8,192 keys, in pages of 16, 64 and 1; drafts of 4 tokens."""
        if device_type != "cuda":
            return [self.case((3, 4, 2, 1, 100, 64, 16), dtype) for dtype in DTYPES]
        decode = [(64, 32, 8, 1, 8192, 128, page) for page in (16, 64, 1)]
        cases = [self.case(shape, "bfloat16") for shape in decode]
        cases += [self.case(decode[0], "bfloat16", lengths="ragged"), self.case(decode[0], "bfloat16", kv=FLOAT8)]
        drafts = self.case((64, 32, 8, 4, 8192, 128, 16), "bfloat16")
        return [*cases, drafts, self.case(decode[0], "float16"), self.case((16, 32, 8, 1, 8192, 128, 16))]

    def validate(self, dims: Mapping[str, int]) -> None:
        if dims["H"] % dims["H_kv"] if dims["H_kv"] else dims["H"]:
            raise UsageError(f"--shape: H={dims['H']} must be a multiple of H_kv={dims['H_kv']}")
        if dims["page"] < 1:
            raise UsageError(f"--shape: page={dims['page']} must be at least 1")

    def covered_sizes(self) -> dict[str, tuple[int, ...]]:
        """Return sizes with the queries' heads as key heads times `group`."""
        keys, pages = (1, 31, 64, 193, 1024), (1, 16, 7, 64)
        sizes = {"B": (1, 3), "H_kv": (1, 3), "group": (1, 4), "S_q": (1, 2, 8), "S_k": keys, "D": (128, 64)}
        return {**sizes, "page": pages}

    def shape_of_sizes(self, sizes: Mapping[str, int]) -> Shape:
        h_kv = sizes["H_kv"]
        heads = (h_kv * sizes["group"], h_kv)
        return (sizes["B"], *heads, sizes["S_q"], sizes["S_k"], sizes["D"], max(sizes["page"], 1))

    def operands(self, case: Case) -> tuple[Shape, ...]:
        b, h, h_kv, s_q, _, d, page = case.shape
        pages = (b * pages_of(case) + 1, page, h_kv, d)
        return ((b, s_q, h, d), pages, pages, (b, pages_of(case)), (b,))

    def operand_dtypes(self, case: Case) -> tuple[str, ...]:
        return (case.dtype, self.kv_dtype(case), self.kv_dtype(case), "int32", "int32")

    def kv_dtype(self, case: Case) -> str:
        return FLOAT8 if case.option("kv") == FLOAT8 else case.dtype

    def make_inputs(self, case: Case, seed: int, device: torch.device) -> tuple[torch.Tensor, ...]:
        """Draw q, the pages, the table and the lengths; for float8 also the scales of keys and values."""
        operands = super().make_inputs(case, seed, device)
        return operands if self.kv_dtype(case) != FLOAT8 else (*operands, *scales(2, -POWER, seed, device))

    def random_shape(self, size: Callable[[], int]) -> Shape:
        h_kv, group = 1 + size() % 3, 1 + size() % 4
        return (size() % 4, h_kv * group, h_kv, size() % 9, size(), 64 * (1 + size() % 2), 1 + size() % 20)

    def bytes(self, case: Case) -> int:
        """Count the pages that hold tokens; the one that holds none is not read."""
        _, _, h_kv, _, _, d, page = case.shape
        return super().bytes(case) - 2 * page * h_kv * d * element_bytes(self.kv_dtype(case))

    def arguments(self, case: Case) -> dict[str, Any]:
        return dict(self.family(case.inputs).arguments)

    def truth(self, inputs: tuple[torch.Tensor, ...], case: Case) -> Iterator[Truth]:
        """Yield the queries of one sequence after the other."""
        b, h, h_kv, s_q, _, d, _ = case.shape
        q, k_pages, v_pages, table, lengths = inputs[:5]
        scale_k, scale_v = (float(each) for each in inputs[5:]) if inputs[5:] else (1.0, 1.0)
        scale = scale_of(case) * scale_k
        for batch, length in enumerate(lengths.tolist()):
            keys, values = (tokens(pages, table[batch], length).to(q.dtype) for pages in (k_pages, v_pages))
            finite_v = bool(values.isfinite().all())
            queries = q[batch].transpose(0, 1).double() * scale
            at_once = self._heads_at_once(case) if finite_v else 1
            found = []
            for first in range(0, h, at_once):
                heads = slice(first, min(first + at_once, h))
                k, v = (heads_of_keys(each, heads, h // h_kv) for each in (keys, values))
                v = v.mul_(scale_v) if inputs[5:] else v
                query, k, v = (each if at_once > 1 else each[0] for each in (queries[heads], k, v))
                parts = attended(query, k, v, 0, s_q, causal=True, dtype=case.dtype, finite_v=finite_v)
                found.append(tuple(each.view(heads.stop - first, s_q, d).transpose(0, 1)[None] for each in parts))
            empty = queries.new_zeros(1, s_q, h, d)
            value, systematic, variance = (
                (torch.cat(each, 2) for each in zip(*found, strict=True)) if found else [empty] * 3
            )
            index = (slice(batch, batch + 1), slice(0, s_q), slice(0, h), slice(0, d))
            yield rows_truth(index, value, systematic, variance, b * h * s_q, case.dtype)

    def _heads_at_once(self, case: Case) -> int:
        return max(1, min(case["H"], blocks.rows_per_block(case["S_k"] * (case["S_q"] + case["D"]), share=4)))

    def output_shape(self, case: Case) -> Shape:
        return (case["B"], case["S_q"], case["H"], case["D"])

    def flops(self, case: Case) -> int:
        """Count two products of 2 D operations for each visible pair, if all sequences have S_k keys."""
        s_q, s_k = case["S_q"], case["S_k"]
        first = max(0, s_q - s_k)  # the first query that sees a key
        pairs = (s_k - s_q + first + 1 + s_k) * (s_q - first) // 2
        return 4 * case["B"] * case["H"] * case["D"] * pairs

    def workspace_bytes(self, case: Case) -> int:
        h, s_q, s_k, d = case["H"], case["S_q"], case["S_k"], case["D"]
        heads = self._heads_at_once(case)
        cached = 2 * case["H_kv"] * (s_k + case["page"]) * d
        return 8 * (heads * (8 * s_q * s_k + 8 * s_k * d) + cached + 12 * s_q * h * d)


OP = PagedAttention()


def scale_of(case: Case) -> float:
    """Return the factor of the scores."""
    return float(OP.arguments(case).get("sm_scale", 1.0 / math.sqrt(max(case["D"], 1))))
