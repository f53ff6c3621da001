"""softmax(Q K^T / sqrt(D)) V in PyTorch, written out, with mistakes in scale, mask and axis."""

import torch
from torch import Tensor

from wrong_kernels import Wrong

MISTAKES = {
    "causal_from_the_first_key": Wrong(
        "the mask is aligned to the first key, as is_causal does it",
        "value",
        (1, 2, 2, 33, 70, 64),
        options={"causal": True},
    ),
    "softmax_over_queries": Wrong(
        "the probabilities of a key sum to 1, not those of a query", "value", (1, 1, 1, 40, 40, 64)
    ),
    "divided_by_d": Wrong("scores are divided by D instead of its square root", "value", (1, 1, 1, 40, 40, 64)),
    "not_scaled": Wrong("sm_scale is forgotten", "value", (1, 1, 1, 40, 40, 64)),
    "empty_rows_nan": Wrong(
        "softmax of a row of -inf is NaN", "not finite", (1, 1, 1, 40, 20, 64), options={"causal": True}
    ),
    "parts_not_rescaled": Wrong(
        "the keys are divided into parts, and the sums of a part stay relative to its own maximum",
        "value",
        (1, 8, 2, 1, 192, 64),
    ),
    "last_part_dropped": Wrong("of two parts of the keys only the full one is added", "value", (1, 2, 1, 1, 70, 64)),
    "heads_inside": Wrong("the result is a view of one stored as (B, S, H, D)", "strides", (1, 2, 2, 40, 40, 64)),
}


PART = 64  # keys


def in_parts(s: Tensor, v: Tensor, mistake: str) -> Tensor:
    """softmax(s) v, of the sums of parts of the keys."""
    largest = s.amax(-1, keepdim=True)
    total = acc = torch.zeros_like(largest)
    for first in range(0, s.shape[-1], PART):
        part, values = s[..., first : first + PART], v[..., first : first + PART, :]
        if part.shape[-1] < PART and mistake == "last_part_dropped":
            break
        p = torch.exp(part - (part.amax(-1, keepdim=True) if mistake == "parts_not_rescaled" else largest))
        total, acc = total + p.sum(-1, keepdim=True), acc + p @ values
    return acc / total


def make(mistake: str):
    def attention(q: Tensor, k: Tensor, v: Tensor, *, causal: bool = False, sm_scale: float | None = None) -> Tensor:
        (S_q, D), (H_kv, S_k) = q.shape[2:], k.shape[1:3]
        k, v = (x.repeat_interleave(q.shape[1] // H_kv, dim=1) for x in (k, v))
        scale = {"divided_by_d": 1.0 / D, "not_scaled": 1.0}.get(mistake, D**-0.5)
        s = q @ k.mT * scale
        if causal:
            shift = 0 if mistake == "causal_from_the_first_key" else S_k - S_q
            seen = torch.ones(S_q, S_k, dtype=torch.bool, device=q.device).tril(shift)
            s = s.masked_fill(~seen, -torch.inf)
        if mistake in ("parts_not_rescaled", "last_part_dropped"):
            return in_parts(s, v, mistake)
        p = torch.softmax(s, dim=-2 if mistake == "softmax_over_queries" else -1)
        if causal and mistake != "empty_rows_nan":
            p = p.masked_fill(~seen, 0.0)
        out = p @ v
        return out.transpose(1, 2).contiguous().transpose(1, 2) if mistake == "heads_inside" else out

    return attention
