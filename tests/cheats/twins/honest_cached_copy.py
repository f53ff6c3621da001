"""Keeps a transposed copy of B, and makes a new one wherever any element of B has changed."""

import torch

OPERATION = "matmul"
TWIN_OF = "remembers_inputs_seen_before"
GPU = False

kept = {}


def same_bits(x, y):
    return torch.equal(x.view(torch.int32), y.view(torch.int32)) if x.dtype == torch.float32 else False


def matmul(a, b, *, precision="ieee"):
    b = b.contiguous()
    if b.shape not in kept or not same_bits(kept[b.shape][0], b):
        kept[b.shape] = b.clone(), b.t().contiguous()
    return torch.nn.functional.linear(a, kept[b.shape][1])
