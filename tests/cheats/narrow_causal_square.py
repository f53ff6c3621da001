"""Aligns the causal mask to the first key, which is right for as many queries as keys alone."""

import torch

OPERATION = "attention"
KIND = "narrow"
EXPECTED = ("wrong",)
GPU = False


def attention(q, k, v, *, causal=False, sm_scale=None):
    S_q, S_k, groups = q.shape[2], k.shape[2], q.shape[1] // max(k.shape[1], 1)
    k, v = (x.repeat_interleave(groups, dim=1).float() for x in (k, v))
    scores = q.float() @ k.mT * (q.shape[3] ** -0.5 if sm_scale is None else sm_scale)
    if causal:
        scores.masked_fill_(torch.ones(S_q, S_k, dtype=torch.bool, device=q.device).triu(1), -torch.inf)
    return (scores.softmax(dim=-1).nan_to_num(0.0) @ v).to(q.dtype)
