"""PyTorch: the vendor implementations (its own kernels, cuBLAS, cuDNN, FlashAttention)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from suite.frameworks import _caches
from suite.frameworks.base import TorchAdapter
from suite.hardware import host
from suite.hardware.device import Device

if TYPE_CHECKING:
    import torch

CACHES = {"TORCHINDUCTOR_CACHE_DIR": "inductor", "TORCH_EXTENSIONS_DIR": "torch_extensions"}


class Torch(TorchAdapter):
    name = "torch"
    folder = "torch_impls"
    rank = 4
    packages = ("torch",)

    def missing(self, device: Device) -> str | None:
        return super().missing(device) or _caches.fault(CACHES)

    def limits(self, device: torch.device) -> Mapping[str, tuple[str, ...]]:
        """oneDNN uses a CPU's bfloat16 instructions, which flush subnormal numbers to zero, and its tiles of bfloat16
        (AMX), which multiply what lies beside the elements of a row by 0."""
        flags = host.cpu_flags() if device.type == "cpu" else ()
        tiles = ("stepped", "padded", "halved", "nan@", "infinity@")
        limits = {"subnormal": "avx512_bf16"} | dict.fromkeys(tiles, "amx_bf16")
        return {inputs: ("bfloat16",) for inputs, flag in limits.items() if flag in flags}

    def prepare(self, device: Device) -> None:
        """Set private folders: torch.compile's default lies in /tmp, where another user can create it first."""
        _caches.use(CACHES)


ADAPTER = Torch()
