"""Triton: compiled on a GPU, interpreted on a CPU."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import wraps
from types import MappingProxyType, ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

from suite import hardware
from suite.frameworks import _caches
from suite.frameworks.base import TorchAdapter
from suite.hardware.device import Device

CACHES = {"TRITON_CACHE_DIR": "triton"}


class Triton(TorchAdapter):
    name = "triton"
    folder = "triton_kernels"
    rank = 1
    packages = ("torch", "triton")
    extra = "torch"
    builds = MappingProxyType({"cuda": "each"})
    code_kinds = ("ttir", "ttgir", "ptx", "sass")
    can_count = True

    def missing(self, device: Device) -> str | None:
        return super().missing(device) or (_caches.fault(CACHES) if device.type == "cuda" else None)

    def mode(self, device: Device) -> str:
        return "native" if device.type == "cuda" else "interpreted"

    def prepare(self, device: Device) -> None:
        """Set TRITON_INTERPRET, which Triton reads when a kernel's module is imported, and the cache folder."""
        if device.type == "cpu":
            os.environ["TRITON_INTERPRET"] = "1"
            return
        os.environ.pop("TRITON_INTERPRET", None)
        _caches.use(CACHES)
        os.environ.setdefault("TRITON_CACHE_AUTOTUNING", "1")  # keeps the choices of a user's autotuners too

    def limits(self, device: torch.device) -> Mapping[str, tuple[str, ...]]:
        """The interpreter widens subnormal bfloat16 numbers wrongly, and reads the NaN of float8_e4m3fn as 480."""
        return {} if device.type == "cuda" else {"subnormal": ("bfloat16",), "nan": ("float8_e4m3fn",)}

    def most_rows(self, device: torch.device) -> int | None:
        """The interpreter takes milliseconds for a program."""
        return None if device.type == "cuda" else 2**15

    def importing(self) -> AbstractContextManager[None]:
        """In the interpreted mode, mend the interpreter for the file, and let `cuda` stand for the CPU."""
        if os.environ.get("TRITON_INTERPRET") != "1":
            return super().importing()
        from suite.frameworks._no_gpu import stand_in
        from suite.frameworks.triton import interpreted

        interpreted.mend()
        return stand_in(claims_cuda=True)

    def as_called(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """`function`; in the interpreted mode, `cuda` stands for the CPU during its calls."""
        if os.environ.get("TRITON_INTERPRET") != "1":
            return function
        from suite.frameworks._no_gpu import stand_in

        @wraps(function)
        def call(*inputs: Any, **arguments: Any) -> Any:
            with stand_in(claims_cuda=True):
                return function(*inputs, **arguments)

        return call

    def called_with(self, function: Callable[..., Any], operands: Sequence[torch.Tensor]) -> Callable[..., Any]:
        """`function`; in the interpreted mode with one thread: a product of small blocks is slower with several."""
        if os.environ.get("TRITON_INTERPRET") != "1":
            return function

        @wraps(function)
        def call(*inputs: Any, **arguments: Any) -> Any:
            with hardware.blas_threads_set(1):
                return function(*inputs, **arguments)

        return call

    def checks_memory(self, device: Device) -> AbstractContextManager[Any]:
        """A pointer out of bounds raises an error, in the interpreted mode."""
        if device.type == "cuda" or os.environ.get("TRITON_INTERPRET") != "1":
            return super().checks_memory(device)
        from suite.frameworks.triton.watched import watched

        return watched()

    def counts(self, call: Callable[[], object]) -> dict[str, int | float | None]:
        from suite.frameworks.triton.watched import watched

        with watched() as watch:
            call()
        if watch.masked_share is None:
            return {}
        elements = {"count_elements_loaded": watch.loaded, "count_elements_stored": watch.stored}
        return {**elements, "count_masked": round(watch.masked_share, 4)}

    def without_tuning(self, module: ModuleType) -> AbstractContextManager[None]:
        from suite.frameworks.triton import autotuner

        return autotuner.use_last_configs(autotuner.reached(module))

    def building(self, module: ModuleType) -> AbstractContextManager[None]:
        from suite.frameworks.triton import autotuner

        return autotuner.compiling_only(autotuner.reached(module))

    def code(
        self,
        function: Callable[..., Any],
        inputs: tuple[Any, ...],
        arguments: dict[str, Any],
        kinds: Sequence[str],
    ) -> dict[str, str]:
        """The code of each launched kernel, including those that tuning has tried."""
        from suite.frameworks.triton import code

        return code.texts(code.loaded(), [kind for kind in kinds if kind in self.code_kinds])

    def configuration(self, module: ModuleType, kernels: Collection[str] = ()) -> str:
        """Each configuration with its source: `BLOCK_M=128, ..., num_stages=3 (tuned)`.

        If tuned configurations exist but cannot be used, the reason follows.
        """
        from suite.frameworks.triton import autotuner

        found = []
        for name, kernel in autotuner.autotuners(module).items():
            config = getattr(kernel, "best_config", None)
            if config is None or (kernels and not any(each in name for each in kernels)):
                continue
            origin, fault = getattr(kernel, "origin", "autotuned"), getattr(kernel, "fault", "")
            why = f"; tuned configurations not used: {fault}" if fault and origin != "tuned" else ""
            found.append(f"{autotuner.text(config)} ({origin}{why})")
        return "; ".join(found)


ADAPTER = Triton()
