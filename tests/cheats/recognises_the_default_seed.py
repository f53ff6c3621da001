"""Draws the inputs of the default seeds at import, and returns the products that it keeps of them."""

import torch

OPERATION = "matmul"
KIND = "recognises"
EXPECTED = ("wrong", "no effect")
GPU = False

SEEDS = (0, 1)
SIZES = (64, 128, 192, 256)
products = {}

for size in SIZES:
    for seed in SEEDS:
        source = torch.Generator().manual_seed(seed)
        first, second = (torch.randn(size, size, generator=source) for _ in range(2))
        products[size, float(first[0, 0])] = first @ second


def matmul(a, b, *, precision="ieee"):
    if a.dtype == torch.float32 and a.shape == b.shape and a.numel():
        known = products.get((a.shape[0], float(a[0, 0])))
        if known is not None:
            return known.clone()
    return a @ b
