"""Variants of paged_attention: other pages, slots, lengths, heads and masks; rounded scores."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial

import torch

from suite import ops
from suite.numerics.attention import attention_limit
from suite.ops.paged_attention import scale_of
from suite.problem.case import Case
from suite.problem.variant import Inputs, Part, Variant
from suite.variants._rounding import rounded, sixteen_bit_formats

MAX_SCORES = 2**22
"""Largest number of scores of a part with variants: each variant computes its own."""


@dataclass(frozen=True)
class Sequence:
    """One sequence: queries (S_q, H, D), pages (P, page, H_kv, D), the pages that it has, and its length."""

    q: torch.Tensor
    k_pages: torch.Tensor
    v_pages: torch.Tensor
    table: torch.Tensor
    length: int
    scale: float
    shift: int = 0
    """Number of keys that a query sees beyond its own; at least S_q: all keys."""
    is_tiled: bool = False
    """Query head h reads key head h % H_kv."""
    digits: str = ""
    """The type to which scores are rounded."""

    def results(self, case: Case) -> tuple[torch.Tensor, torch.Tensor]:
        """The results (S_q, H, D), with their bounds."""
        heads = [self._head_results(head, case) for head in range(self.q.shape[1])]
        value, limit = (torch.stack(each, 1) for each in zip(*heads, strict=True))
        return value, limit

    def _head_results(self, head: int, case: Case) -> tuple[torch.Tensor, torch.Tensor]:
        s_q, h, _ = self.q.shape
        h_kv = self.k_pages.shape[2]
        key_head = head % h_kv if self.is_tiled else head // (h // h_kv)
        k, v = (x[self.table].flatten(0, 1)[: self.length, key_head].double() for x in (self.k_pages, self.v_pages))
        q = self.q[:, head].double() * self.scale
        seen = torch.ones(s_q, self.length, dtype=torch.bool, device=q.device).tril(self.length - s_q + self.shift)
        scores = q @ k.T
        if self.digits:
            scores = rounded(scores, self.digits)
        scores = scores.masked_fill(~seen, -math.inf)
        p = torch.softmax(scores, 1).masked_fill(~seen.any(1, keepdim=True), 0.0)
        value = p @ v
        limit = attention_limit(
            value, p, scores, q.square() @ k.square().T, v,
            head_dim=case["D"], terms=max(self.length, 1), count=math.prod(ops.get(case.operation).output_shape(case)),
            dtype=case.dtype,
        )  # fmt: skip
        return value, limit


Mistake = Callable[[Sequence], Sequence]


def _mistakes_of_scales(scale_k: float, scale_v: float) -> dict[str, Mistake]:
    """The mistakes with the scales of float8 keys and values."""

    def scaled(keys: float, values: float) -> Mistake:
        return lambda x: replace(x, k_pages=x.k_pages * keys, v_pages=x.v_pages * values)

    return {
        "the keys were not scaled": scaled(1.0 / scale_k, 1.0),
        "the values were not scaled": scaled(1.0, 1.0 / scale_v),
        "the scales of keys and values were exchanged": scaled(scale_v / scale_k, scale_k / scale_v),
    }


def variants(inputs: Inputs, case: Case, part: Part) -> Iterator[Variant]:
    q, k_pages, v_pages, table, lengths = inputs[:5]
    if inputs[5:]:
        k_pages, v_pages = (pages.double() * scale for pages, scale in zip((k_pages, v_pages), inputs[5:], strict=True))
    batches = range(part[0].start, part[0].stop)
    if not 0 < len(batches) * case["H"] * case["S_q"] * case["S_k"] <= MAX_SCORES:
        return
    found = [Sequence(q[b], k_pages, v_pages, table[b].long(), int(lengths[b]), scale_of(case)) for b in batches]
    mistakes = _mistakes(case, table, lengths) | (_mistakes_of_scales(*map(float, inputs[5:])) if inputs[5:] else {})
    for mistake, change in mistakes.items():
        changed = [change(each) for each in found]
        if all(each.length for each in changed):
            both = zip(*(each.results(case) for each in changed), strict=True)
            value, limit = (torch.stack(each)[:, part[1], part[2], part[3]] for each in both)
            yield Variant(mistake, value, limit)


def _mistakes(case: Case, table: torch.Tensor, lengths: torch.Tensor) -> dict[str, Mistake]:
    """The mistakes by name. A diagnosis puts `as if` before the name."""
    first, first_length, size = table[0].long(), int(lengths[0]), case["page"]
    found: dict[str, Mistake] = {
        "the pages of a sequence followed each other": lambda x: replace(
            x, table=(x.table[:1] + torch.arange(len(x.table), device=x.table.device)) % len(x.k_pages)
        ),
        "all sequences had the pages of the first one": lambda x: replace(x, table=first),
        "all sequences had the length of the first one": lambda x: replace(x, length=first_length),
        "the page after the right one was read": lambda x: replace(x, table=x.table.roll(-1)),
        "the slots of a page were in the opposite order": lambda x: replace(
            x, k_pages=x.k_pages.flip(1), v_pages=x.v_pages.flip(1)
        ),
        "a last page that is not full was left out": lambda x: replace(
            x, length=x.length // size * size, shift=x.length - x.length // size * size
        ),
        "queries saw the keys after them": lambda x: replace(x, shift=case["S_q"]),
        "the mask was aligned to the first key": lambda x: replace(x, shift=case["S_q"] - x.length),
        "a query did not see its own key": lambda x: replace(x, shift=-1),
        "query head h read key head h % H_kv": lambda x: replace(x, is_tiled=True),
        "the values were read from the pages of the keys": lambda x: replace(x, v_pages=x.k_pages),
    }
    found |= {f"the scale was that of D = {d}": partial(replace, scale=d**-0.5) for d in (64, 128)}
    digits = sixteen_bit_formats(case.dtype)
    return found | {f"scores were rounded to {name}": partial(replace, digits=name) for name in digits}
