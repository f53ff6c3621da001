"""JAX: jitted by XLA on either device. Arrays cross by DLPack, without a copy."""

from __future__ import annotations

import importlib.util
import math
import os
import zlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from suite.frameworks import _caches
from suite.frameworks.base import GPU_EXTRA, Adapter
from suite.hardware import host

if TYPE_CHECKING:
    import torch

    from suite.hardware.device import Device

CACHES = {"JAX_COMPILATION_CACHE_DIR": "jax"}
COPIED_BYTES = 1 << 24
"""The largest array that is copied from the host rather than filled by a compiled program."""
ALIGNMENT = {"cpu": 64, "cuda": 128}
"""Alignment in bytes that XLA's programs assume of their arguments."""


class Jax(Adapter):
    name = "jax"
    folder = "jax_impls"
    rank = 2
    packages = ("jax", "jaxlib", "torch")
    builds = MappingProxyType({"cuda": "telling"})
    code_kinds = ("hlo",)
    array = "jax.Array"

    def missing(self, device: Device) -> str | None:
        absent = super().missing(device)
        plugins = ("jax_cuda13_plugin", "jax_cuda12_plugin")
        if absent is None and device.type == "cuda" and not any(map(importlib.util.find_spec, plugins)):
            return f"jax has no CUDA plugin: {GPU_EXTRA}"
        return absent or (_caches.fault(CACHES) if device.type == "cuda" else None)

    def prepare(self, device: Device) -> None:
        """Without these variables XLA allocates three quarters of the device's memory, or looks for a GPU on a CPU run.

        The compilation cache, on a GPU with the results of XLA's autotuning, is kept between processes. XLA does not
        ask whether a program in it was compiled for other processors, so each kind of processor has a folder.
        """
        os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
        os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
        if device.type == "cpu":
            os.environ["JAX_PLATFORMS"] = "cpu"
            flags = zlib.crc32(" ".join(sorted(host.cpu_flags())).encode())
            _caches.use({name: f"{folder}-cpu-{flags:08x}" for name, folder in CACHES.items()})
            return
        os.environ.pop("JAX_PLATFORMS", None)
        _caches.use(CACHES)

    def watch_cache(self) -> Callable[[], str]:
        """By the events that JAX sends when it looks into its compilation cache."""
        from jax import monitoring

        events: list[str] = []

        def listen(event: str, **_: Any) -> None:
            events.append(event.rpartition("/")[2])

        monitoring.register_event_listener(listen)

        def outcome() -> str:
            monitoring.unregister_event_listener(listen)
            if "cache_misses" in events:
                return "miss"
            return "hit" if "cache_hits" in events else ""

        return outcome

    def to_native(self, tensor: torch.Tensor) -> Any:
        """Without a copy for a permuted, aligned array; one with gaps or repeated elements is copied."""
        import torch
        from jax import dlpack

        by_stride = sorted(range(tensor.ndim), key=tensor.stride, reverse=True)
        compact = tensor.permute(by_stride).is_contiguous() and tensor.data_ptr() % ALIGNMENT[tensor.device.type] == 0
        return dlpack.from_dlpack(tensor if compact else tensor.clone(memory_format=torch.contiguous_format))

    def shares_memory(self, array: Any, tensor: torch.Tensor) -> bool:
        return tensor.numel() == 0 or bool(array.unsafe_buffer_pointer() == tensor.data_ptr())

    def limits(self, device: torch.device) -> Mapping[str, tuple[str, ...]]:
        """XLA flushes subnormal numbers to zero on a CPU; float16's it has widened before."""
        return {} if device.type == "cuda" else {"subnormal": ("float32", "bfloat16")}

    def is_array(self, result: Any) -> bool:
        import jax

        return isinstance(result, jax.Array)

    def to_torch(self, array: Any) -> Any:
        import jax
        import torch

        return torch.from_dlpack(jax.block_until_ready(array))

    def poisoned(
        self, call: Callable[[], Any], shapes: Sequence[tuple[int, ...]], dtype: str, device: torch.device
    ) -> Any:
        """Arrays of NaN are made and freed; XLA's allocator tends to return the same memory for the results.

        JAX itself has no uninitialised arrays; this is for elements that a Pallas kernel or a foreign function skips.
        """
        import jax

        for array in jax.block_until_ready([_of_nan(shape, dtype) for shape in shapes]):
            array.delete()
        return call()

    def peak_bytes(
        self, function: Callable[..., Any], inputs: tuple[Any, ...], arguments: dict[str, Any]
    ) -> int | None:
        """The temporary buffer of the compiled program (in jit's cache already) by XLA's memory analysis."""
        if not hasattr(function, "lower"):
            return None
        analysis = function.lower(*inputs, **arguments).compile().memory_analysis()
        return None if analysis is None else int(analysis.temp_size_in_bytes)

    def code(
        self,
        function: Callable[..., Any],
        inputs: tuple[Any, ...],
        arguments: dict[str, Any],
        kinds: Sequence[str],
    ) -> dict[str, str]:
        """The program as XLA has optimized it. A function that is not jitted itself is jitted here as a whole."""
        import jax

        if "hlo" not in kinds:
            return {}
        jitted = function if hasattr(function, "lower") else jax.jit(partial(function, **arguments))
        lowered = jitted.lower(*inputs, **(arguments if jitted is function else {}))
        return {"program.hlo": lowered.compile().as_text()}

    def wait(self, result: Any) -> None:
        import jax

        jax.block_until_ready(result)


def _of_nan(shape: tuple[int, ...], dtype: str) -> Any:
    """An array of NaN in memory of XLA's. A small one is copied there: a fill is a program for each shape."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    kind = jnp.dtype(dtype)
    if jnp.issubdtype(kind, jnp.floating) and math.prod(shape) * kind.itemsize <= COPIED_BYTES:
        return jax.device_put(np.full(shape, np.nan, kind), may_alias=False)
    return jnp.full(shape, jnp.nan, dtype)


ADAPTER = Jax()
