"""Draws numbers of its own, from a generator with a fixed seed, to test itself at import."""

import torch

OPERATION = "matmul"
TWIN_OF = "recognises_the_default_seed"
GPU = False

source = torch.Generator().manual_seed(0)
x, y = (torch.randn(16, 16, generator=source) for _ in range(2))
if not torch.allclose(x @ y, (y.mT @ x.mT).mT, atol=1e-4):
    raise RuntimeError("matmul: the product and the transposed product of the transposes differ")


def matmul(a, b, *, precision="ieee"):
    return a @ b
