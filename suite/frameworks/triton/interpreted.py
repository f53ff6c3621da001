"""Triton's interpreter for users' files: code that works on a GPU works here, or gives the reason why not.

Import this only after `Adapter.prepare` of Triton, in the interpreted mode. `mend` changes the interpreter of this
process, which runs one user's file.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import cache, partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.runtime import interpreter
from triton.runtime.autotuner import Autotuner
from triton.runtime.interpreter import InterpretedFunction, TensorHandle
from triton.testing import Mark

from suite.frameworks import _no_gpu
from suite.frameworks.triton import bfloat16, libdevice
from triton_kernels._runtime import interpreter as _faster  # noqa: F401 (the interpreter patches its language once)


@cache
def mend() -> None:
    """Mend the interpreter of this process, once."""
    bfloat16.mend()
    libdevice.provide()
    interpreter._implicit_cvt = _wrapping_all(interpreter._implicit_cvt)
    InterpretedFunction.run = _taking_lists(InterpretedFunction.run)
    InterpretedFunction.warmup = lambda self, *args, grid, **constants: _Warm(self, *args, **constants)
    Autotuner._bench = lambda self, *args, config, **constants: [0.0] * 3  # the first of equal times is chosen
    Autotuner.origin = "the first; the interpreter tunes nothing"
    Mark.run = lambda self, *args, **kwargs: None
    triton.runtime.driver.set_active(_Driver())


def _wrapping_all(convert: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The interpreter's conversion of kernel arguments, for floats and truth values too: tensors, as on a GPU."""

    def converted(value: Any) -> Any:
        if isinstance(value, bool):
            return tl.tensor(TensorHandle(np.array([value]), tl.int1), tl.int1)
        if isinstance(value, float):
            return tl.tensor(TensorHandle(np.array([value], np.float32), tl.float32), tl.float32)
        return convert(value)

    return converted


def _taking_lists(run: Callable[..., Any]) -> Callable[..., Any]:
    """The interpreter's launch, for a grid that is a list too."""

    def launch(self: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
        tuples = (lambda meta: tuple(grid(meta))) if callable(grid) else tuple(grid)
        return run(self, *args, grid=tuples, warmup=warmup, **kwargs)

    return launch


class _Warm:
    """The result of `kernel.warmup(...)`: stands for a compiled kernel, whose launches are interpreted."""

    n_regs, n_spills = 32, 0

    def __init__(self, kernel: InterpretedFunction, *args: Any, **constants: Any) -> None:
        self._kernel = kernel
        self._given: Mapping[str, Any] = inspect.signature(kernel.fn).bind_partial(*args).arguments | constants
        self.metadata = SimpleNamespace(shared=1024, num_warps=constants.get("num_warps", 4))
        self.asm: dict[str, str] = {}

    def _init_handles(self) -> None:
        """Load the kernel: nothing to do."""

    def __getitem__(self, grid: Any) -> Callable[..., Any]:
        return partial(self._launch, grid)

    def _launch(self, grid: Any, *args: Any, **kwargs: Any) -> Any:
        """Launch; constants that are left out have the values that they were compiled with."""
        given = {*inspect.signature(self._kernel.fn).bind_partial(*args).arguments, *kwargs}
        rest = {name: value for name, value in self._given.items() if name not in given}
        return self._kernel.run(*args, grid=grid, warmup=False, **kwargs, **rest)


class _Driver:
    """Stands for the driver of a GPU: answers the questions that files ask at import."""

    def __init__(self) -> None:
        self.utils = SimpleNamespace(get_device_properties=lambda device=None: dict(_PROPERTIES))

    def get_current_target(self) -> GPUTarget:
        major, minor = _no_gpu.CAPABILITY
        return GPUTarget("cuda", 10 * major + minor, 32)

    def get_active_torch_device(self) -> torch.device:
        return torch.device("cpu")

    def get_device_capability(self, device: Any = None) -> tuple[int, int]:
        return _no_gpu.CAPABILITY

    def get_current_device(self) -> int:
        return 0

    def set_current_device(self, device: Any) -> None:
        """There is one device."""

    def get_current_stream(self, device: Any = None) -> int:
        return 0

    def get_device_interface(self) -> Any:
        return torch.cuda

    def get_benchmarker(self) -> Callable[..., Any]:
        return lambda call, quantiles, **options: [0.0] * len(quantiles)


_PROPERTIES = {
    "multiprocessor_count": _no_gpu.MULTIPROCESSORS,
    "max_shared_mem": _no_gpu.SHARED_BYTES,
    "max_num_regs": 65536,
    "warpSize": 32,
    "sm_clock_rate": 1_410_000,
    "mem_clock_rate": 1_215_000,
    "mem_bus_width": 5120,
}
