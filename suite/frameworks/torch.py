"""PyTorch: the vendor implementations (its own kernels, cuBLAS, cuDNN, FlashAttention)."""

from __future__ import annotations

from suite.frameworks import _caches
from suite.frameworks.base import TorchAdapter
from suite.hardware.device import Device

CACHES = {"TORCHINDUCTOR_CACHE_DIR": "inductor", "TORCH_EXTENSIONS_DIR": "torch_extensions"}


class Torch(TorchAdapter):
    name = "torch"
    folder = "torch_impls"
    rank = 4
    packages = ("torch",)

    def missing(self, device: Device) -> str | None:
        return super().missing(device) or _caches.fault(CACHES)

    def prepare(self, device: Device) -> None:
        """Sets a private folder: torch.compile's default one lies in /tmp, where another user can create it first."""
        _caches.use(CACHES)


ADAPTER = Torch()
