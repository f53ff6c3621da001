"""Returns zeros for every operation: a row that must stay wrong, whatever its neighbours do."""

import torch


def vector_add(a, b):
    return torch.zeros_like(a)


def sigmoid(x):
    return torch.zeros_like(x)


def matmul(a, b, *, precision="ieee"):
    return torch.zeros(a.shape[0], b.shape[1], dtype=a.dtype, device=a.device)


def attention(q, k, v, *, causal=False, sm_scale=None):
    return torch.zeros_like(q)


def top_k(x, *, k):
    return x[:, :k].clone(), torch.arange(k).repeat(len(x), 1)
