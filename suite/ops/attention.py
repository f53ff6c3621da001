"""attention: O = softmax(Q K^T / sqrt(D)) V, with grouped key/value heads and a causal mask aligned to the last key."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from suite import check
from suite.errors import UsageError
from suite.op import DTYPES, Case, Op
from suite.ops import _draw


class Attention(Op):
    name = "attention"
    formula = "O[b, h, i] = softmax over visible j of (Q[b, h, i] . K[b, h_kv, j] / sqrt(D)) times V[b, h_kv, j]"
    dims = ("B", "H", "H_kv", "S_q", "S_k", "D")
    causal = True
    sweep = tuple((1, 16, 16, s, s, 64) for s in (16, 64, 256, 1024, 4096))
    ragged = (
        (1, 1, 1, 1, 1, 64),
        (1, 2, 1, 1, 77, 64),
        (2, 2, 2, 65, 65, 64),
        (1, 4, 2, 33, 130, 64),
        (1, 2, 1, 130, 33, 64),
        (1, 1, 1, 50, 127, 128),
        (1, 1, 1, 40, 40, 256),
    )

    def default_cases(self, device_type: str) -> list[Case]:
        """On a GPU 16384 tokens and 2048 features, as in FlashAttention's papers; and grouped, ragged, float32."""
        if device_type != "cuda":
            return [
                self.case((1, 4, 2, 100, 100, 64), dtype, causal=causal) for dtype in DTYPES for causal in (False, True)
            ]
        plain = [(4, 2048 // d, 2048 // d, 4096, 4096, d) for d in (64, 128, 256)]
        cases = [self.case(shape, "bfloat16", causal=causal) for shape in plain for causal in (False, True)]
        cases += [self.case(plain[1], "float16", causal=causal) for causal in (False, True)]
        cases += [self.case((4, 32, 8, 4096, 4096, 128), "bfloat16", causal=True)]
        cases += [self.case((1, 16, 16, 3000, 3000, 128), "bfloat16", causal=True)]
        cases += [self.case((2, 16, 16, 1024, 1024, 128), "float32", causal=causal) for causal in (False, True)]
        return cases

    def validate(self, dims: Mapping[str, int]) -> None:
        if dims["H"] % dims["H_kv"]:
            raise UsageError(f"--shape: H={dims['H']} must be a multiple of H_kv={dims['H_kv']}")

    def make_inputs(self, case: Case, seed: int, device: torch.device) -> tuple[torch.Tensor, ...]:
        source = _draw.generator(seed, device)
        b, h, h_kv, s_q, s_k, d = case.shape
        shapes = ((b, h, s_q, d), (b, h_kv, s_k, d), (b, h_kv, s_k, d))
        return tuple(_draw.normal(shape, case.dtype, source) for shape in shapes)

    def arguments(self, case: Case) -> dict[str, Any]:
        return {"causal": bool(case.causal)}

    def truth(self, inputs: tuple[torch.Tensor, ...], case: Case) -> Iterator[check.Truth]:
        b, h, h_kv, s_q, _, d = case.shape
        rows = self._rows(case)
        for batch in range(b):
            for head in range(h):
                k = inputs[1][batch, head * h_kv // h].double()
                v = inputs[2][batch, head * h_kv // h].double()
                for start in range(0, s_q, rows):
                    stop = min(start + rows, s_q)
                    q = inputs[0][batch, head, start:stop].double()
                    value, limit = self._rows_truth(q, k, v, start, case)
                    index = (slice(batch, batch + 1), slice(head, head + 1), slice(start, stop), slice(0, d))
                    yield check.Truth(index, value[None, None], limit[None, None])

    def _rows(self, case: Case) -> int:
        return max(1, min(case["S_q"], _draw.BLOCK_ELEMENTS // case["S_k"]))

    def _rows_truth(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, start: int, case: Case
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The exact output rows of `q`, which begin at query `start`, and their bound."""
        b, h, _, s_q, s_k, d = case.shape
        scale = 1.0 / math.sqrt(d)
        scores = q @ k.T * scale
        sizes = (q.square() @ k.square().T).sqrt() * scale
        if case.causal:
            last_visible = torch.arange(start, start + len(q), device=q.device)[:, None] + (s_k - s_q)
            hidden = torch.arange(s_k, device=q.device)[None, :] > last_visible
            scores = scores.masked_fill(hidden, -math.inf)
            sizes = sizes.masked_fill(hidden, 0.0)
        score_size = (torch.where(scores.isinf(), 0.0, scores.abs()) + sizes).amax(dim=1, keepdim=True)
        p = torch.softmax(scores, dim=1).nan_to_num(0.0)  # a query that sees no key gives zeros
        p_squared = p.square()
        value = p @ v
        limit = check.attention_limit(
            value,
            p_squared.sum(dim=1, keepdim=True),
            (p_squared @ v.square()).sqrt(),
            v.square().sum(dim=0, keepdim=True).sqrt(),
            score_size,
            head_dim=d,
            keys=s_k,
            count=b * h * s_q * d,
            dtype=case.dtype,
        )
        return value, limit

    def output_shape(self, case: Case) -> tuple[int, ...]:
        return (case["B"], case["H"], case["S_q"], case["D"])

    def visible_pairs(self, case: Case) -> int:
        """Pairs of a query and a key that it sees, in one head."""
        s_q, s_k = case["S_q"], case["S_k"]
        if not case.causal:
            return s_q * s_k
        first = max(0, s_q - s_k)  # the first query that sees a key
        seen_first, seen_last = s_k - s_q + first + 1, s_k
        return (seen_first + seen_last) * (s_q - first) // 2

    def flops(self, case: Case) -> int:
        """Two products of 2 D operations for each visible pair."""
        return 4 * case["B"] * case["H"] * case["D"] * self.visible_pairs(case)

    def bytes(self, case: Case) -> int:
        b, h, h_kv, s_q, s_k, d = case.shape
        return 2 * b * d * (h * s_q + h_kv * s_k) * case.element_bytes

    def workspace_bytes(self, case: Case) -> int:
        s_k, d = case["S_k"], case["D"]
        return 8 * (6 * self._rows(case) * (s_k + d) + 2 * s_k * d)


OP = Attention()
