"""PyTorch: the vendor lines (its own kernels, cuBLAS, cuDNN, FlashAttention)."""

from __future__ import annotations

from suite.backends.base import TorchBackend


class Torch(TorchBackend):
    name = "torch"
    folder = "torch_impls"
    packages = ("torch",)


BACKEND = Torch()
