"""softmax(Q K^T / sqrt(D)) V in Triton, by an online softmax over tiles of keys, with mistakes in each of its parts."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from wrong_kernels import Wrong

MISTAKES = {
    "causal_from_the_first_key": Wrong(
        "query i sees keys up to i, also where S_q differs from S_k",
        "value",
        (1, 2, 2, 33, 70, 64),
        options={"causal": True},
    ),
    "output_not_rescaled": Wrong(
        "when the maximum grows, the sum of weights is rescaled, the output is not", "value", (1, 1, 1, 32, 128, 64)
    ),
    "keys_beyond_the_end": Wrong("keys beyond S_k get the score 0 instead of -inf", "value", (1, 1, 1, 32, 70, 64)),
    "kv_head_by_remainder": Wrong(
        "query head h reads key head h % H_kv, not h // (H // H_kv)", "value", (1, 4, 2, 32, 32, 64)
    ),
    "empty_rows_divided": Wrong(
        "a query that sees no key is 0 / 0", "not finite", (1, 1, 1, 40, 20, 64), options={"causal": True}
    ),
}
BLOCK = 32


@triton.jit
def kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, H, H_kv, S_q, S_k, sm_scale,
    CAUSAL: tl.constexpr, MISTAKE: tl.constexpr, D: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One program computes BLOCK rows of one head. All tensors are contiguous."""
    bh = tl.program_id(1)
    h = bh % H
    h_kv = h % H_kv if MISTAKE == "kv_head_by_remainder" else h // (H // H_kv)
    kv = (bh // H * H_kv + h_kv) * S_k * D
    offs_m = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    offs_d = tl.arange(0, D)
    rows = bh * S_q * D + offs_m[:, None] * D + offs_d[None, :]
    q = tl.load(q_ptr + rows, mask=offs_m[:, None] < S_q, other=0.0)
    last_key = offs_m if MISTAKE == "causal_from_the_first_key" else offs_m + S_k - S_q

    m_i = tl.full((BLOCK,), float("-inf"), tl.float32)
    l_i = tl.zeros((BLOCK,), tl.float32)
    acc = tl.zeros((BLOCK, D), tl.float32)
    for start in range(0, S_k, BLOCK):
        keys = start + tl.arange(0, BLOCK)
        there = keys[:, None] < S_k
        k = tl.load(k_ptr + kv + keys[:, None] * D + offs_d[None, :], mask=there, other=0.0)
        v = tl.load(v_ptr + kv + keys[:, None] * D + offs_d[None, :], mask=there, other=0.0)
        s = tl.dot(q, tl.trans(k), input_precision="ieee") * sm_scale
        if MISTAKE != "keys_beyond_the_end":
            s = tl.where(keys[None, :] < S_k, s, float("-inf"))
        if CAUSAL:
            s = tl.where(keys[None, :] <= last_key[:, None], s, float("-inf"))
        m_new = tl.maximum(m_i, tl.max(s, 1))
        shift = tl.where(m_new == float("-inf"), 0.0, m_new)
        p = tl.exp(s - shift[:, None])
        alpha = tl.exp(m_i - shift)
        l_i = l_i * alpha + tl.sum(p, 1)
        if MISTAKE != "output_not_rescaled":
            acc = acc * alpha[:, None]
        acc += tl.dot(p, v, input_precision="ieee")
        m_i = m_new
    if MISTAKE != "empty_rows_divided":
        l_i = tl.where(l_i == 0.0, 1.0, l_i)
    tl.store(out_ptr + rows, acc / l_i[:, None], mask=offs_m[:, None] < S_q)


def make(mistake: str):
    def attention(q: Tensor, k: Tensor, v: Tensor, *, causal: bool = False, sm_scale: float | None = None) -> Tensor:
        B, H, S_q, D = q.shape
        _, H_kv, S_k, _ = k.shape
        out = torch.empty_like(q)
        grid = (triton.cdiv(S_q, BLOCK), B * H)
        kernel[grid](q, k, v, out, H, H_kv, S_q, S_k, sm_scale or D**-0.5, causal, mistake, D, BLOCK)
        return out

    return attention
