"""CUDA C++: compiled by nvcc on a GPU; the same source compiled by the C++ compiler and emulated on a CPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from types import MappingProxyType
from typing import Any

from suite.frameworks import _caches
from suite.frameworks.base import TorchAdapter
from suite.hardware.device import Device

COUNTED = (
    *(
        "warps",
        "loads",
        "load_sectors",
        "stores",
        "store_sectors",
        "shared_loads",
        "shared_stores",
        "conflicts",
        "atomics",
    ),
    *("barriers", "divergent", "flops"),
)
"""Fields of `cuda_ref.build.counting.Counts` that are columns of a row."""
CACHES = {"": "cuda"}
"""No variable names the folder: `cuda_ref/build/cache.py` always uses this one."""


class Cuda(TorchAdapter):
    name = "cuda"
    folder = "cuda_ref"
    rank = 3
    packages = ("torch", "ninja")
    extra = "torch"
    code_kinds = ("ptx", "sass")
    can_count = True
    builds = MappingProxyType({"cpu": "once", "cuda": "arithmetic"})

    def missing(self, device: Device) -> str | None:
        from cuda_ref.build.compiler import missing

        return super().missing(device) or missing(device.type) or _caches.fault(CACHES)

    def mode(self, device: Device) -> str:
        return "native" if device.type == "cuda" else "emulated"

    def checks_memory(self, device: Device) -> AbstractContextManager[None]:
        """An access out of bounds and a race in shared memory raise an error, on a CPU."""
        from cuda_ref import build

        return build.checked() if device.type == "cpu" else nullcontext()

    def counts(self, call: Callable[[], object]) -> dict[str, int | float | None]:
        from cuda_ref import build
        from cuda_ref.build import counting

        with build.counted() as found:
            call()
        total = counting.total(found)
        return {f"count_{name}": getattr(total, name) for name in COUNTED} if total is not None else {}

    def code(
        self,
        function: Callable[..., Any],
        inputs: tuple[Any, ...],
        arguments: dict[str, Any],
        kinds: Sequence[str],
    ) -> dict[str, str]:
        """One file for each .cu that was launched, with its kernels for all dtypes and tile sizes."""
        from cuda_ref import build

        makers = {"ptx": build.ptx, "sass": build.sass}
        return {
            f"{Path(source).stem}.{kind}": make(source, arch)
            for source, arch in build.launched()
            for kind, make in makers.items()
            if kind in kinds
        }


ADAPTER = Cuda()
