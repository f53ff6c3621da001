"""Computes every operation in plain torch: a row that must stay ok, at its usual time, whatever its neighbours do."""

import torch
import torch.nn.functional as F


def vector_add(a, b):
    return a + b


def sigmoid(x):
    return torch.sigmoid(x)


def matmul(a, b, *, precision="ieee"):
    return a @ b


def attention(q, k, v, *, causal=False, sm_scale=None):
    S_q, S_k = q.shape[2], k.shape[2]
    seen = torch.ones(S_q, S_k, dtype=torch.bool, device=q.device).tril(S_k - S_q) if causal else None
    k, v = (x.repeat_interleave(q.shape[1] // max(x.shape[1], 1), dim=1) for x in (k, v))
    return F.scaled_dot_product_attention(q, k, v, seen, scale=sm_scale).nan_to_num(0.0)


def top_k(x, *, k):
    return tuple(torch.topk(x, k, dim=1))
