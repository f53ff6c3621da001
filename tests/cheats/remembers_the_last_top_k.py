"""Keeps the largest elements of each row, and looks only at rows in which a change can have moved them."""

import torch

OPERATION = "top_k"
KIND = "remembers"
EXPECTED = ("wrong", "no effect")
GPU = False

last = {}


def top_k(x, *, k):
    key = x.shape, k, x.dtype
    if key not in last or not bool(x.isfinite().all()):
        values, indices = torch.topk(x, k, dim=1)
    else:
        old, values, indices = last[key]
        changed = x != old
        moved = changed.gather(1, indices).any(1)
        moved |= torch.where(changed, x, -torch.inf).amax(1) >= values[:, -1]
        values[moved], indices[moved] = torch.topk(x[moved], k, dim=1)
    last[key] = x.clone(), values.clone(), indices.clone()
    return values, indices
