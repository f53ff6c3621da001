"""Looks at the first 64 keys, which are all that its first case has."""

import torch

OPERATION = "attention"
KIND = "narrow"
EXPECTED = ("wrong",)
GPU = False
SHAPE = "B=1,H=4,H_kv=2,S_q=64,S_k=64,D=64"


def attention(q, k, v, *, causal=False, sm_scale=None):
    S_q, S_k, groups = q.shape[2], k.shape[2], q.shape[1] // max(k.shape[1], 1)
    k, v = (x.repeat_interleave(groups, dim=1).float() for x in (k, v))
    scores = q.float() @ k.mT * (q.shape[3] ** -0.5 if sm_scale is None else sm_scale)
    if causal:
        hidden = torch.ones(S_q, S_k, dtype=torch.bool, device=q.device).triu(S_k - S_q + 1)
        scores.masked_fill_(hidden, -torch.inf)
    scores[..., 64:] = -torch.inf
    return (scores.softmax(dim=-1).nan_to_num(0.0) @ v).to(q.dtype)
