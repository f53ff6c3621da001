"""paged_attention in PyTorch: the wrong page, the wrong slot, the wrong length."""

import math

import torch
from torch import Tensor

from wrong_kernels import Wrong

SHAPE = (3, 4, 2, 2, 70, 64, 16)
FULL = (3, 4, 2, 2, 64, 64, 16)
RAGGED = {"lengths": "ragged"}
FLOAT8 = {"kv": "float8_e4m3fn"}
MISTAKES = {
    "table_ignored": Wrong("the pages of a sequence are taken to follow each other", "value", FULL),
    "first_table": Wrong("all sequences read the pages of the first one", "value", SHAPE),
    "page_of_next": Wrong("the page of key j + 1 is read for key j", "value", FULL),
    "slots_reversed": Wrong("the slots of a page are read from its end", "value", FULL),
    "last_page_dropped": Wrong("the last page, which is not full, is left out", "value", SHAPE),
    "first_length": Wrong(
        "all sequences have the length of the first one", "not finite", SHAPE, options=RAGGED, inputs="unused_nan"
    ),
    "lengths_ignored": Wrong(
        "slots without a token are read", "not finite", SHAPE, options=RAGGED, inputs="unused_nan"
    ),
    "no_mask": Wrong("a query sees the keys after it", "value", SHAPE),
    "mask_of_first_key": Wrong("the mask is aligned to the first key", "value", SHAPE),
    "last_key_dropped": Wrong("the key of the query itself is hidden", "value", SHAPE),
    "heads_tiled": Wrong("query head h reads key head h % H_kv", "value", SHAPE),
    "scale_of_128": Wrong("the scale is that of D = 128", "value", SHAPE),
    "values_of_keys": Wrong("the values are read from the pages of keys", "value", SHAPE),
    "scores_rounded": Wrong("float32, but scores are rounded to bfloat16", "value", SHAPE),
    "keys_not_scaled": Wrong("the scale of float8 keys is left out", "value", SHAPE, options=FLOAT8),
    "values_not_scaled": Wrong("the scale of float8 values is left out", "value", SHAPE, options=FLOAT8),
    "scales_exchanged": Wrong("float8 keys have the scale of values", "value", SHAPE, options=FLOAT8),
    "blind_not_zero": Wrong("a query that sees no key gets NaN", "not finite", (2, 2, 1, 8, 3, 64, 16)),
}


def make(mistake: str):
    def paged_attention(
        q: Tensor,
        k_pages: Tensor,
        v_pages: Tensor,
        table: Tensor,
        lengths: Tensor,
        scale_k: float = 1.0,
        scale_v: float = 1.0,
        *,
        sm_scale: float | None = None,
    ) -> Tensor:
        if mistake == "scales_exchanged":
            scale_k, scale_v = scale_v, scale_k
        k_pages = k_pages.double() * (1.0 if mistake == "keys_not_scaled" else scale_k)
        v_pages = v_pages.double() * (1.0 if mistake == "values_not_scaled" else scale_v)
        B, S_q, H, D = q.shape
        H_kv = k_pages.shape[2]
        out = torch.zeros(q.shape, dtype=torch.float64, device=q.device)
        scale = (128 if mistake == "scale_of_128" else D) ** -0.5 if sm_scale is None else sm_scale
        for b in range(B):
            length = int(lengths[0 if mistake == "first_length" else b])
            shift = length - S_q
            pages = table[0 if mistake == "first_table" else b].long()
            if mistake == "table_ignored":
                pages = (pages[:1] + torch.arange(len(pages), device=q.device)) % len(k_pages)
            if mistake == "page_of_next":
                pages = pages.roll(-1)
            if mistake == "last_page_dropped":
                length = (length - 1) // k_pages.shape[1] * k_pages.shape[1]
            if mistake == "lengths_ignored":
                length = len(pages) * k_pages.shape[1]
            keys, values = (x[pages] for x in (k_pages, k_pages if mistake == "values_of_keys" else v_pages))
            if mistake == "slots_reversed":
                keys, values = keys.flip(1), values.flip(1)
            k, v = (x.flatten(0, 1)[:length].double() for x in (keys, values))
            seen = torch.ones(S_q, length, dtype=torch.bool, device=q.device)
            if mistake == "mask_of_first_key":
                shift = 0
            if mistake == "last_key_dropped":
                shift -= 1
            seen = seen if mistake == "no_mask" else seen.tril(shift)
            for h in range(H):
                h_kv = h % H_kv if mistake == "heads_tiled" else h // (H // H_kv)
                scores = (q[b, :, h].double() * scale) @ k[:, h_kv].T
                if mistake == "scores_rounded":
                    scores = scores.bfloat16().double()
                p = torch.softmax(scores.masked_fill(~seen, -math.inf), 1)
                if mistake != "blind_not_zero":
                    p = p.masked_fill(~seen.any(1, keepdim=True), 0.0)
                out[b, :, h] = p @ v[:, h_kv]
        return out.to(q.dtype)

    return paged_attention
