"""CUDA C++: compiled by nvcc on a GPU; the same source compiled by the C++ compiler and emulated on a CPU."""

from __future__ import annotations

from suite.frameworks.base import TorchAdapter
from suite.hardware.device import Device


class Cuda(TorchAdapter):
    name = "cuda"
    folder = "cuda_ref"
    rank = 3
    packages = ("torch", "ninja")

    def missing(self, device: Device) -> str | None:
        from cuda_ref.compiler import missing

        return super().missing(device) or missing(device.type)

    def mode(self, device: Device) -> str:
        return "native" if device.type == "cuda" else "emulated"


ADAPTER = Cuda()
