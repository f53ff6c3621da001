"""Attention over a cache in pages by PyTorch: the pages are gathered, then scaled_dot_product_attention."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int32
from torch import Tensor

from torch_impls._runtime.caches import check_paged_attention
from torch_impls.attention._sdpa import unfused_in_float32

VENDOR = "PyTorch"


def paged_attention(
    q: Float[Tensor, "B S_q H D"],
    k_pages: Float[Tensor, "P page H_kv D"],
    v_pages: Float[Tensor, "P page H_kv D"],
    table: Int32[Tensor, "B pages"],
    lengths: Int32[Tensor, B],
    scale_k: Float[Tensor, ""] | None = None,
    scale_v: Float[Tensor, ""] | None = None,
    *,
    sm_scale: float | None = None,
) -> Float[Tensor, "B S_q H D"]:
    """o[b, i, h] = sum over j <= i + lengths[b] - S_q of softmax_j(sm_scale q[b, i, h] . k[b, j, h_kv]) v[b, j, h_kv].

    Key j of sequence b is k_pages[table[b, j // page], j % page]. Query head h reads key head h // (H // H_kv).
    `sm_scale` defaults to 1 / sqrt(D). A query that sees no key gives zeros. Slots without a token do not count.

    Dtypes: float32, float16 or bfloat16; PyTorch chooses the kernel, and in float32 the unfused one with float32
    products. table and lengths: int32. A NaN or an infinity among the last S_q - 1 values of a sequence may reach all
    its queries. The gathered keys and values are copies as long as the longest table. Pages of float8_e4m3fn have a
    scale each, of keys and of values: float32, of shape (). Products are then those of float32.

    Raises ValueError for other shapes and dtypes, and for different devices.
    """
    _, S_q, H, H_kv, page, _ = check_paged_attention(q, k_pages, v_pages, table, lengths, scale_k, scale_v)
    slots = table.shape[1] * page
    if q.numel() == 0 or slots == 0:
        return q.new_zeros(q.shape)
    at = torch.arange(slots, device=q.device)
    held = at < lengths[:, None]  # [B, slots]
    keys, values = (_tokens(pages, table, held) for pages in (k_pages, v_pages))
    given = q.dtype
    if scale_k is not None:  # scaled numbers are not exact in 16 bits
        q, keys, values = q.float(), keys.float() * scale_k, values.float() * scale_v
    last = lengths[:, None] - S_q + torch.arange(S_q, device=q.device)  # the last key that each query sees
    seen = at <= last[..., None]  # [B, S_q, slots]
    arguments = {"attn_mask": seen[:, None], "scale": sm_scale, "enable_gqa": H_kv != H}
    if q.dtype == torch.float32:
        with unfused_in_float32(q):
            out = F.scaled_dot_product_attention(q.transpose(1, 2), keys, values, **arguments)
    else:
        out = F.scaled_dot_product_attention(q.transpose(1, 2), keys, values, **arguments)
    return out.transpose(1, 2).masked_fill((last < 0)[:, :, None, None], 0.0).to(given).contiguous()


def _tokens(pages: Tensor, table: Tensor, held: Tensor) -> Tensor:
    """The keys or values of each sequence, (B, H_kv, slots, D); zeros in slots without a token."""
    used = held[:, :: pages.shape[1]]  # entries beyond a sequence's pages may be no page
    found = pages[torch.where(used, table, 0).long()].flatten(1, 2)
    if found.element_size() == 1:
        found = found.half()  # exact; torch fills no float8
    return found.masked_fill(~held[..., None, None], 0.0).transpose(1, 2)
