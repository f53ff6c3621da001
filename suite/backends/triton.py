"""Triton: compiled on a GPU, interpreted on a CPU."""

from __future__ import annotations

import os
from types import ModuleType

from suite.backends import _caches
from suite.backends.base import TorchBackend
from suite.device import Device

CACHES = {"TRITON_CACHE_DIR": "triton"}


class Triton(TorchBackend):
    name = "triton"
    folder = "triton_kernels"
    packages = ("torch", "triton")

    def missing(self, device: Device) -> str | None:
        return super().missing(device) or (_caches.fault(CACHES) if device.type == "cuda" else None)

    def mode(self, device: Device) -> str:
        return "native" if device.type == "cuda" else "interpreted"

    def prepare(self, device: Device) -> None:
        """The interpreter is chosen when a kernel's module is imported, so the variable comes first."""
        if device.type == "cpu":
            os.environ["TRITON_INTERPRET"] = "1"
        else:
            os.environ.pop("TRITON_INTERPRET", None)
            _caches.use(CACHES)
            os.environ.setdefault("TRITON_CACHE_AUTOTUNING", "1")  # what tuning chose is kept like what it compiled

    def configuration(self, module: ModuleType) -> str:
        from triton.runtime.autotuner import Autotuner

        tuned = [v for v in vars(module).values() if isinstance(v, Autotuner) and getattr(v, "best_config", None)]
        return "; ".join(str(kernel.best_config).replace(": ", "=") for kernel in tuned)


BACKEND = Triton()
