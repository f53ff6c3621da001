"""JAX: jitted by XLA on either device. Arrays cross by DLPack, without a copy."""

from __future__ import annotations

import importlib.util
import math
import os
import sys
import zlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from suite.frameworks import _caches
from suite.frameworks.base import Adapter
from suite.hardware import host, threads

if TYPE_CHECKING:
    import torch

    from suite.hardware.device import Device

CACHES = {"JAX_COMPILATION_CACHE_DIR": "jax"}
COPIED_BYTES = 1 << 24
"""Largest array that is copied from the host; a compiled program fills larger ones."""
ALIGNMENT = {"cpu": 64, "cuda": 128}
"""Alignment in bytes that XLA's programs assume of their arguments."""


class Jax(Adapter):
    name = "jax"
    folder = "jax_impls"
    rank = 2
    packages = ("jax", "jaxlib", "torch")
    extra = "jax"
    builds = MappingProxyType({"cuda": "telling"})
    code_kinds = ("hlo",)
    stand_ins = MappingProxyType({"int64": "int32", "uint64": "uint32"})
    array = "jax.Array"

    def missing(self, device: Device) -> str | None:
        absent = super().missing(device)
        plugins = ("jax_cuda13_plugin", "jax_cuda12_plugin")
        if absent is None and device.type == "cuda" and not any(map(importlib.util.find_spec, plugins)):
            return f"jax has no CUDA plugin: {self.install_command(device)}"
        return absent or (_caches.fault(CACHES) if device.type == "cuda" else None)

    def prepare(self, device: Device) -> None:
        """Set the variables without which XLA takes three quarters of a GPU's memory, or looks for a GPU on a CPU run.

        The compilation cache is kept between processes; on a GPU it includes the results of XLA's autotuning. XLA does
        not check for which CPU a cached program was compiled, so each kind of CPU has its own folder.
        """
        os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
        os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
        if device.type == "cpu":
            os.environ["JAX_PLATFORMS"] = "cpu"
            if not self.is_running():
                os.environ.setdefault(threads.XLA_VARIABLE, str(threads.native_threads()))
            flags = zlib.crc32(" ".join(sorted(host.cpu_flags())).encode())
            _caches.use({name: f"{folder}-cpu-{flags:08x}" for name, folder in CACHES.items()})
            return
        os.environ.pop("JAX_PLATFORMS", None)
        _caches.use(CACHES)

    def has_own_threads(self) -> bool:
        """True if XLA was in use before `prepare`: it then keeps the number of threads that it began with."""
        return self.is_running() and threads.XLA_VARIABLE not in os.environ

    def is_running(self) -> bool:
        """True if JAX has been used in this process."""
        bridge = sys.modules.get("jax._src.xla_bridge")
        return bridge is not None and bool(bridge.backends_are_initialized())

    def watch_cache(self) -> Callable[[], str]:
        """Listen to the events that JAX sends at each look-up in its compilation cache."""
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
        """Share the memory of a permuted, aligned tensor; copy one with gaps or repeated elements."""
        import torch
        from jax import dlpack

        if tensor.dtype is torch.float64 and not _has_64_bits():
            return _In64Bits(self.to_native)(tensor)
        by_stride = sorted(range(tensor.ndim), key=tensor.stride, reverse=True)
        compact = tensor.permute(by_stride).is_contiguous() and tensor.data_ptr() % ALIGNMENT[tensor.device.type] == 0
        return dlpack.from_dlpack(tensor if compact else tensor.clone(memory_format=torch.contiguous_format))

    def called_with(self, function: Callable[..., Any], operands: Sequence[torch.Tensor]) -> Callable[..., Any]:
        """JAX has float64 only in its 64-bit mode, which is on during each call with such an operand."""
        import torch

        return _In64Bits(function) if any(each.dtype is torch.float64 for each in operands) else function

    def shares_memory(self, array: Any, tensor: torch.Tensor) -> bool:
        return tensor.numel() == 0 or bool(array.unsafe_buffer_pointer() == tensor.data_ptr())

    def limits(self, device: torch.device) -> Mapping[str, tuple[str, ...]]:
        """XLA flushes subnormal numbers to zero on a CPU, except those of float16, which it widens first."""
        return {} if device.type == "cuda" else {"subnormal": ("float32", "bfloat16", "float64")}

    def is_array(self, result: Any) -> bool:
        import jax

        return isinstance(result, jax.Array)

    def to_torch(self, array: Any) -> Any:
        import jax
        import torch

        return torch.from_dlpack(jax.block_until_ready(array))

    def form(self, array: Any) -> tuple[tuple[int, ...], str, tuple[int, ...]]:
        """Arrays of JAX are dense; their strides are given as those of rows, whatever the order of their axes."""
        shape = tuple(array.shape)
        return shape, str(array.dtype), tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))

    def poisoned(
        self, call: Callable[[], Any], shapes: Sequence[tuple[int, ...]], dtypes: Sequence[str], device: torch.device
    ) -> Any:
        """Make and free arrays of NaN: XLA's allocator tends to return the same memory for the results.

        JAX itself has no uninitialised arrays. This finds elements that a Pallas kernel or a foreign function skips.
        """
        import jax
        import jax.numpy as jnp

        if "float64" in dtypes and not _has_64_bits():
            return _In64Bits(self.poisoned)(call, shapes, dtypes, device)
        floating = [each for each in zip(shapes, dtypes, strict=True) if jnp.issubdtype(each[1], jnp.inexact)]
        for array in jax.block_until_ready([_nan_array(shape, dtype) for shape, dtype in floating]):
            array.delete()
        return call()

    def peak_bytes(
        self, function: Callable[..., Any], inputs: tuple[Any, ...], arguments: dict[str, Any]
    ) -> int | None:
        """Size of the temporary buffer of the program, which jit has cached, by XLA's memory analysis."""
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
        """The program after XLA's optimizations. A function that is not jitted is jitted here as a whole."""
        import jax

        if "hlo" not in kinds:
            return {}
        jitted = function if hasattr(function, "lower") else jax.jit(partial(function, **arguments))
        lowered = jitted.lower(*inputs, **(arguments if jitted is function else {}))
        return {"program.hlo": lowered.compile().as_text()}

    def over_ranks(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """`function` inside shard_map, with the name of the mesh axis of all ranks."""
        from suite.frameworks import _jax_ranks

        return _jax_ranks.mapped(function)

    def gate(self, device: torch.device, delay_us: float) -> Callable[[], object]:
        """The wait is a program that adds one number of each rank: XLA runs the programs of a device in order."""
        from suite.frameworks import _jax_ranks

        return _jax_ranks.gate(delay_us)

    def wait(self, result: Any) -> None:
        import jax

        jax.block_until_ready(result)


class _In64Bits:
    """A function that runs, and is compiled, in JAX's 64-bit mode. Other calls are not affected."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        if hasattr(function, "lower"):
            self.lower = _In64Bits(function.lower)

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        import jax

        with jax.enable_x64(True):
            return self._function(*arguments, **options)


def _has_64_bits() -> bool:
    import jax

    return bool(jax.config.jax_enable_x64)


def _nan_array(shape: tuple[int, ...], dtype: str) -> Any:
    """An array of NaN in XLA's memory. A small one is copied, as a fill needs a program for each shape."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    kind = jnp.dtype(dtype)
    if jnp.issubdtype(kind, jnp.floating) and math.prod(shape) * kind.itemsize <= COPIED_BYTES:
        return jax.device_put(np.full(shape, np.nan, kind), may_alias=False)
    return jnp.full(shape, jnp.nan, dtype)


ADAPTER = Jax()
