"""ring_attention: attention over a sequence that is split over the ranks; q (B, H, S, D), k and v (B, H_kv, S, D)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any, ClassVar

import torch

from suite.core.errors import UsageError
from suite.numerics.formats import DTYPES
from suite.ops import attention
from suite.problem import blocks, family, numbers
from suite.problem.attention_inputs import large_scores, shifted, single_element, stored_bshd
from suite.problem.case import Case
from suite.problem.family import Family
from suite.problem.option import Option
from suite.problem.ranked import RankedOperation, Shard
from suite.problem.shape import Shape
from suite.problem.truth import Truth

ODD = (2, 2, 1, 50, 64)
"""Shape of most families: grouped heads, and a size that is a multiple of no tile."""
EACH_OPERAND = (3, 2, 1, 50, 64)
"""The same with a batch entry for each of q, k and v."""
NOT_CAUSAL: Mapping[str, tuple[bool, ...]] = {"causal": (False,)}


def pieces(size: int, ranks: int, rank: int, *, causal: bool) -> list[tuple[slice, int]]:
    """Return the rows of a rank, and the positions in the whole sequence at which they begin.

    Causal shares are balanced: the first `size // 2` rows follow those of the rank before, and the others come before
    those of that rank (zigzag).
    """
    if not causal:
        return [(slice(0, size), rank * size)]
    half = size // 2
    return [(slice(0, half), rank * half), (slice(half, size), ranks * half + (ranks - 1 - rank) * (size - half))]


def whole(shares: Sequence[torch.Tensor], *, causal: bool) -> torch.Tensor:
    """Return the sequence that the shares (..., S, D) of all ranks make."""
    size, ranks = shares[0].shape[-2], len(shares)
    found = torch.empty_like(torch.cat(list(shares), dim=-2))
    for rank, share in enumerate(shares):
        for rows, start in pieces(size, ranks, rank, causal=causal):
            found[..., start : start + rows.stop - rows.start, :] = share[..., rows, :]
    return found


class RingAttention(RankedOperation):
    rank = 240
    group = "ranks"
    name = "ring_attention"
    over_ranks = True
    formula = (
        "O[b, h, i] = softmax over visible j of (Q[b, h, i] . K[b, h_kv, j] / sqrt(D)) times V[b, h_kv, j], "
        "for this rank's i, and j of all ranks"
    )
    dims = ("B", "H", "H_kv", "S", "D")
    options = (Option("causal", (False, True), "queries do not see later keys; zigzag shares", every=True),)
    sweep = tuple((1, 16, 16, s, 64) for s in (16, 64, 256, 1024, 4096))
    telling_left_out = (
        "infinity@",
        "subnormal@",
    )  # in 16 bits torch gives 0 where all scores are minus infinity; see attention
    ragged: ClassVar[tuple[Shape, ...]] = ((1, 1, 1, 1, 64), (1, 4, 2, 33, 64), (1, 1, 1, 130, 128), (1, 2, 1, 40, 256))
    families: ClassVar[Mapping[str, Family]] = {
        "normal": family.normal(),
        "sizes": family.sizes(*ragged),
        "empty": family.empty((1, 2, 1, 0, 64), (0, 2, 1, 5, 64)),
        "transposed": Family("stored as (B, S, H, D)", family.NORMALS, stored_bshd, shapes=((2, 4, 2, 33, 64),)),
        "strided": family.strided_views(ODD),
        "offset": family.offset(ODD),
        "broadcast": family.broadcast(ODD),
        "signed_zero": family.signed_zero(ODD),
        "nan": replace(family.nan(EACH_OPERAND, values=single_element(math.nan, 0, 1, 2)), options=NOT_CAUSAL),
        "large_logits": Family(
            "scores whose exponential overflows unless their maximum is subtracted",
            numbers.per_operand(large_scores, large_scores, numbers.normals),
            shapes=(ODD,),
        ),
        "range": family.spread(ODD, 20, -20, 20),
        "shifted": Family(
            "scores with a common part and values with a mean, which show scores or sums in 16 bits",
            shifted,
            shapes=((1, 2, 1, 256, 64),),
        ),
    }

    def default_cases(self, device_type: str) -> list[Case]:
        """Cases on a GPU, of one rank: 4096 and 16384 tokens in bfloat16, heads of 128 features; the other types."""
        if device_type != "cuda":
            return [self.case((1, 2, 1, 70, 64), dtype, causal=causal) for dtype in DTYPES for causal in (False, True)]
        shapes = ((1, 16, 16, 4096, 128), (1, 32, 8, 16384, 128))
        cases = [self.case(shape, "bfloat16", causal=causal) for shape in shapes for causal in (False, True)]
        return [*cases, self.case(shapes[0], "float16", causal=True), self.case((1, 16, 16, 1024, 128), causal=True)]

    def validate(self, dims: Mapping[str, int]) -> None:
        if dims["H"] % dims["H_kv"] if dims["H_kv"] else dims["H"]:
            raise UsageError(f"--shape: H={dims['H']} must be a multiple of H_kv={dims['H_kv']}")

    def covered_sizes(self) -> dict[str, tuple[int, ...]]:
        """Return sizes with the queries' heads as key heads times `group`."""
        return {"B": (1, 2), "H_kv": (1, 2), "group": (1, 2), "S": (1, 31, 64, 193), "D": (128, 64)}

    def shape_of_sizes(self, sizes: Mapping[str, int]) -> Shape:
        h_kv = sizes["H_kv"]
        return (sizes["B"], h_kv * sizes["group"], h_kv, sizes["S"], sizes["D"])

    def random_shape(self, size: Callable[[], int]) -> Shape:
        h_kv = 1 + size() % 3
        return (size() % 3, h_kv * (1 + size() % 2), h_kv, size(), 64 * (1 + size() % 2))

    def operands(self, case: Case) -> tuple[Shape, ...]:
        b, h, h_kv, s, d = case.shape
        return ((b, h, s, d), (b, h_kv, s, d), (b, h_kv, s, d))

    def second_case(self, case: Case) -> Case:
        return replace(case, inputs="shifted") if case.inputs in ("normal", "sizes") else case

    def arguments(self, case: Case) -> dict[str, Any]:
        return {"causal": case.option("causal", False)}

    def _attention(self, case: Case, ranks: int) -> Case:
        """The attention over the sequence of `ranks` ranks, as a case of that operation."""
        b, h, h_kv, s, d = case.shape
        causal = case.option("causal", False)
        return attention.OP.case((b, h, h_kv, ranks * s, ranks * s, d), case.dtype, causal=causal)

    def truth_of_rank(self, shards: Sequence[Shard], rank: int, case: Case) -> Iterator[Truth]:
        """Yield the rows of this rank, some heads at a time, of attention over the whole sequence, with its bound.

        The sums of the ranks' blocks must therefore stay in float32 until all are added.
        """
        b, h, h_kv, s, d = case.shape
        causal = case.option("causal", False)
        scale = attention.OP.scale(self._attention(case, case.ranks))
        q = shards[rank][0]
        k, v = (whole([shard[i] for shard in shards], causal=causal) for i in (1, 2))
        finite_v = bool(v.isfinite().all())
        entries, heads = self._at_once(case) if finite_v else (1, 1)
        at_once = blocks.rows_per_block(case.ranks * s, share=4)
        for batch, head in product(range(0, b, entries), range(0, h, heads)):
            index = slice(batch, min(batch + entries, b)), slice(head, min(head + heads, h)), slice(0, s), slice(0, d)
            some_q = q[index].double() * scale
            of_keys = torch.arange(h, device=q.device)[index[1]] // (h // h_kv)
            keys, values = (each[index[0]][:, of_keys].double() for each in (k, v))
            if not finite_v:
                some_q, keys, values = some_q[0, 0], keys[0, 0], values[0, 0]
            value, systematic, variance = (
                torch.empty(q[index].shape, dtype=torch.float64, device=q.device) for _ in range(3)
            )
            for rows, position in pieces(s, case.ranks, rank, causal=causal):
                for start in range(rows.start, rows.stop, at_once):
                    some = slice(start, min(start + at_once, rows.stop))
                    at = position + start - rows.start
                    value[..., some, :], systematic[..., some, :], variance[..., some, :] = attention.attended(
                        some_q[..., some, :], keys, values, at, case.ranks * s,
                        causal=causal, dtype=case.dtype, finite_v=finite_v,
                    )  # fmt: skip
            yield attention.rows_truth(index, value, systematic, variance, b * h * s, case.dtype)

    def _at_once(self, case: Case) -> tuple[int, int]:
        """Return the batch entries and the heads of one matrix product: a call for each short head takes longer."""
        b, h, _, s, d = case.shape
        room = min(blocks.rows_per_block(case.ranks * s * each, share=4) for each in (s, d))
        return max(1, min(b, room // max(h, 1))), max(1, min(h, room))

    def output_shape(self, case: Case) -> Shape:
        b, h, _, s, d = case.shape
        return (b, h, s, d)

    def flops(self, case: Case) -> int:
        """Count two products of 2 D operations for each visible pair; all ranks have as many."""
        return attention.OP.flops(self._attention(case, case.ranks)) // case.ranks

    def transfer_bytes(self, case: Case) -> int:
        """Count the keys and values of this rank, for each other one."""
        b, _, h_kv, s, d = case.shape
        return 2 * (case.ranks - 1) * b * h_kv * s * d * case.element_bytes

    def workspace_bytes(self, case: Case) -> int:
        """Count the inputs of all ranks twice, and the scores of some rows and keys of some heads in float64."""
        s, d = case["S"], case["D"]
        rows = min(s, blocks.rows_per_block(case.ranks * s, share=4))
        of_head = 8 * (8 * rows + 4 * d) * case.ranks * s + 8 * 16 * s * d
        return 2 * case.ranks * self._input_bytes(case) + math.prod(self._at_once(case)) * of_head


OP = RingAttention()
