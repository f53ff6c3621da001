"""JAX: jitted by XLA on either device. Arrays cross by DLPack, without a copy."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from suite.backends.base import GPU_EXTRA, Backend

if TYPE_CHECKING:
    import torch

    from suite.device import Device


class Jax(Backend):
    name = "jax"
    folder = "jax_impls"
    packages = ("jax", "jaxlib", "torch")

    def missing(self, device: Device) -> str | None:
        absent = super().missing(device)
        plugins = ("jax_cuda13_plugin", "jax_cuda12_plugin")
        if absent is None and device.type == "cuda" and not any(map(importlib.util.find_spec, plugins)):
            return f"jax has no CUDA plugin: {GPU_EXTRA}"
        return absent

    def prepare(self, device: Device) -> None:
        """Without these XLA takes three quarters of the device's memory, or looks for a GPU it is not to use.

        On a GPU compiled programs, and what XLA's autotuning chose for them, are kept between processes.
        """
        os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
        if device.type == "cpu":
            os.environ["JAX_PLATFORMS"] = "cpu"
            return
        os.environ.pop("JAX_PLATFORMS", None)
        if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
            base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
            folder = base / "kernel-suite" / "jax"
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            os.environ["JAX_COMPILATION_CACHE_DIR"] = str(folder)
        os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"

    def to_native(self, tensor: torch.Tensor) -> Any:
        """JAX takes a permuted array as it is; one with gaps or repeated elements is copied first."""
        from jax import dlpack

        by_stride = sorted(range(tensor.ndim), key=tensor.stride, reverse=True)
        compact = tensor.permute(by_stride).is_contiguous()
        return dlpack.from_dlpack(tensor if compact else tensor.contiguous())

    def to_torch(self, array: Any) -> Any:
        import jax
        import torch

        return torch.from_dlpack(array) if isinstance(array, jax.Array) else array

    def peak_bytes(
        self, function: Callable[..., Any], inputs: tuple[Any, ...], arguments: dict[str, Any]
    ) -> int | None:
        """The temporary buffer of the compiled program, as XLA planned it; the program is in jit's cache already."""
        if not hasattr(function, "lower"):
            return None
        analysis = function.lower(*inputs, **arguments).compile().memory_analysis()
        return None if analysis is None else int(analysis.temp_size_in_bytes)

    def wait(self, result: Any) -> None:
        import jax

        jax.block_until_ready(result)


BACKEND = Jax()
