"""A layer of multi-head attention in PyTorch, written out, with the mistakes that are made where parts meet."""

import torch
from torch import Tensor

from wrong_kernels import Wrong

SHAPE, WIDE, CAUSAL = (2, 40, 128, 2), (1, 33, 1024, 8), {"causal": True}

MISTAKES = {
    "heads_interleaved": Wrong("features of a head are taken every H-th, not side by side", "value", SHAPE),
    "parts_interleaved": Wrong("rows of w_qkv are read as q, k, v of one head after the other", "value", SHAPE),
    "q_and_k_swapped": Wrong("keys ask and queries answer", "value", SHAPE),
    "k_and_v_swapped": Wrong("values score and keys are added", "value", SHAPE),
    "not_scaled": Wrong("scores lack the factor 1 / sqrt(D)", "value", SHAPE),
    "scaled_by_e": Wrong("scores are divided by the root of E, not of a head's D", "value", SHAPE),
    "mask_off_by_one": Wrong("a position sees the one after it", "value", SHAPE, options=CAUSAL),
    "mask_left_out": Wrong("causal is ignored", "value", SHAPE, options=CAUSAL),
    "heads_not_merged": Wrong("attention's result is read as (B, H, S, D), heads before positions", "value", SHAPE),
    "w_out_left_out": Wrong("the last product is left out", "value", SHAPE),
    "w_out_not_transposed": Wrong("y = o w_out, not o w_out^T", "value", SHAPE),
    "last_head_dropped": Wrong("the last head's result is zeros", "value", SHAPE),
    "across_batch_entries": Wrong("positions of all batch entries see each other", "value", SHAPE),
    "sums_in_bfloat16": Wrong("q, k and v are summed in bfloat16, 16 products at a time", "value", WIDE, "bfloat16"),
    "output_sums_in_bfloat16": Wrong("y is summed in bfloat16, 16 products at a time", "value", WIDE, "bfloat16"),
    "qkv_in_bfloat16": Wrong("float32, but q, k and v are rounded to bfloat16 between the kernels", "value", SHAPE),
    "maximum_not_subtracted": Wrong(
        "exp of the scores overflows", "not finite", (2, 35, 128, 2), inputs="large_logits"
    ),
}


def product(x: Tensor, w: Tensor, narrow: bool) -> Tensor:
    """x w^T in float32, or with sums that are rounded to bfloat16 after every 16 products."""
    x, w = x.float(), w.float()
    if not narrow:
        return x @ w.mT
    total = torch.zeros(*x.shape[:-1], w.shape[0], dtype=torch.bfloat16, device=x.device)
    for start in range(0, x.shape[-1], 16):
        total = (total + x[..., start : start + 16] @ w[:, start : start + 16].mT).bfloat16()
    return total.float()


def make(mistake: str):
    def multi_head_attention(x: Tensor, w_qkv: Tensor, w_out: Tensor, *, heads: int, causal: bool = False) -> Tensor:
        (B, S, E), D, dtype = x.shape, x.shape[2] // heads, x.dtype
        qkv = product(x, w_qkv, mistake == "sums_in_bfloat16").to(dtype).float()
        if mistake == "qkv_in_bfloat16":
            qkv = qkv.bfloat16().float()
        if mistake == "across_batch_entries":
            qkv = qkv.view(1, B * S, 3 * E)
        forms = {"heads_interleaved": (3, D, heads), "parts_interleaved": (heads, 3, D)}
        orders = {"heads_interleaved": (2, 0, 4, 1, 3), "parts_interleaved": (3, 0, 2, 1, 4)}
        split = qkv.view(*qkv.shape[:2], *forms.get(mistake, (3, heads, D)))
        q, k, v = split.permute(*orders.get(mistake, (2, 0, 3, 1, 4)))
        if mistake == "q_and_k_swapped":
            q, k = k, q
        if mistake == "k_and_v_swapped":
            k, v = v, k
        scale = {"not_scaled": 1.0, "scaled_by_e": E**-0.5}.get(mistake, D**-0.5)
        s = q @ k.mT * scale
        if causal and mistake != "mask_left_out":
            seen = torch.ones(s.shape[-2:], dtype=torch.bool, device=x.device).tril(int(mistake == "mask_off_by_one"))
            s = s.masked_fill(~seen, -torch.inf)
        p = s.exp() / s.exp().sum(-1, keepdim=True) if mistake == "maximum_not_subtracted" else torch.softmax(s, -1)
        o = p @ v
        if mistake == "last_head_dropped":
            o[:, -1] = 0.0
        o = o if mistake == "heads_not_merged" else o.transpose(1, 2)
        o = o.reshape(B, S, E).to(dtype)
        if mistake == "w_out_left_out":
            return o
        w_last = w_out.mT if mistake == "w_out_not_transposed" else w_out
        return product(o, w_last, mistake == "output_sums_in_bfloat16").to(dtype)

    return multi_head_attention
