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
}
OF_WINDOWS = {
    "window_of_one_key_less": "a query sees W - 1 keys: i - W + 1 < j",
    "window_ignored": "the window is accepted and ignored",
    "window_from_the_first_key": "the window is aligned to the first key, the causal mask to the last",
    "window_without_its_first_tile": "the loop over tiles of 32 keys begins one tile after the first window",
}
MISTAKES |= {
    name: Wrong(about, "value", (1, 2, 2, 50, 120, 64), options={"window": "40"}) for name, about in OF_WINDOWS.items()
}
OF_FLOAT8 = {
    "scale_q_forgotten": "queries are not scaled",
    "scale_k_twice": "keys are scaled twice",
    "scale_v_forgotten": "values are not scaled",
    "scale_v_twice": "values are scaled twice",
    "float8_not_by_d": "scores are not divided by the square root of D",
    "float8_last_keys_dropped": "keys beyond the last whole block of 32 are left out",
    "float8_one_key_head": "every query head reads the first key head",
    "float8_parts_not_rescaled": "sums of 32 keys stay relative to their own maximum",
}
MISTAKES |= {
    name: Wrong(about, "value", (1, 4, 2, 40, 72, 64), "float8_e4m3fn", "fast") for name, about in OF_FLOAT8.items()
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


def in_window(S_q: int, S_k: int, window: int, mistake: str, device: torch.device) -> Tensor:
    """The pairs whose key is not before the query's window."""
    shift, size = S_k - S_q, window - 1 if mistake == "window_of_one_key_less" else window
    keys, rows = torch.arange(S_k, device=device), torch.arange(S_q, device=device)[:, None]
    near = keys > rows - size + (0 if mistake == "window_from_the_first_key" else shift)
    if mistake == "window_without_its_first_tile":
        near &= keys >= (rows // 32 * 32 + shift - size + 1).clamp(min=0) // 32 * 32 + 32
    return near


def of_float8(q: Tensor, k: Tensor, v: Tensor, scales: tuple[Tensor, ...], sm_scale: float, mistake: str) -> Tensor:
    """Without a mask, where q, k and v have a scale each."""
    scale_q, scale_k, scale_v = scales
    q = q if mistake == "scale_q_forgotten" else q * scale_q
    if mistake == "float8_one_key_head":
        k, v = (x[:, :1].expand_as(x) for x in (k, v))
    s = q @ (k * scale_k).mT * (1.0 if mistake == "float8_not_by_d" else sm_scale)
    if mistake == "scale_k_twice":
        s = s * scale_k
    if mistake == "float8_last_keys_dropped":
        s, v = s[..., : s.shape[-1] // 32 * 32], v[..., : v.shape[-2] // 32 * 32, :]
    largest = s.amax(-1, keepdim=True)
    if mistake == "float8_parts_not_rescaled":
        largest = torch.cat([part.amax(-1, keepdim=True).expand_as(part) for part in s.split(32, -1)], -1)
    p = torch.exp(s - largest)
    total = p.sum(-1, keepdim=True)
    of_values = {"scale_v_forgotten": 1.0, "scale_v_twice": scale_v * scale_v}
    return (p @ v / total * of_values.get(mistake, scale_v)).bfloat16()


def make(mistake: str):
    def attention(
        q: Tensor,
        k: Tensor,
        v: Tensor,
        *scales: Tensor,
        causal: bool = False,
        sm_scale: float | None = None,
        window: int | None = None,
    ) -> Tensor:
        (S_q, D), (H_kv, S_k) = q.shape[2:], k.shape[1:3]
        k, v = (x.repeat_interleave(q.shape[1] // H_kv, dim=1) for x in (k, v))
        if scales:
            return of_float8(q.float(), k.float(), v.float(), scales, D**-0.5, mistake)
        scale = {"divided_by_d": 1.0 / D, "not_scaled": 1.0}.get(mistake, D**-0.5)
        s = q @ k.mT * scale
        if causal:
            shift = 0 if mistake == "causal_from_the_first_key" else S_k - S_q
            seen = torch.ones(S_q, S_k, dtype=torch.bool, device=q.device).tril(shift)
            if window and mistake != "window_ignored":
                seen &= in_window(S_q, S_k, window, mistake, q.device)
            s = s.masked_fill(~seen, -torch.inf)
        if mistake in ("parts_not_rescaled", "last_part_dropped"):
            return in_parts(s, v, mistake)
        p = torch.softmax(s, dim=-2 if mistake == "softmax_over_queries" else -1)
        if causal and mistake != "empty_rows_nan":
            p = p.masked_fill(~seen, 0.0)
        out = p @ v
        return out

    return attention
