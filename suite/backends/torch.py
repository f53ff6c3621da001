"""PyTorch: the vendor lines (its own kernels, cuBLAS, cuDNN, FlashAttention)."""

from __future__ import annotations

from suite.backends import _caches
from suite.backends.base import TorchBackend
from suite.device import Device

CACHES = {"TORCHINDUCTOR_CACHE_DIR": "inductor", "TORCH_EXTENSIONS_DIR": "torch_extensions"}


class Torch(TorchBackend):
    name = "torch"
    folder = "torch_impls"
    packages = ("torch",)

    def missing(self, device: Device) -> str | None:
        return super().missing(device) or _caches.fault(CACHES)

    def prepare(self, device: Device) -> None:
        """torch.compile would keep its code in /tmp, under a name that anybody can take first."""
        _caches.use(CACHES)


BACKEND = Torch()
