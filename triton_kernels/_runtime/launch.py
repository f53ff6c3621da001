"""Functions that launchers share: the current device, serialized launches, the grid of a persistent kernel, and a
copy with contiguous columns."""

import ctypes
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import copy_context
from functools import partial
from typing import Any, TypeVar

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.runtime.autotuner import Autotuner

from triton_kernels._runtime import kept as _kept
from triton_kernels._runtime import keys as _keys
from triton_kernels._runtime.interpreter import INTERPRET
from triton_kernels._runtime.repeat import repeatable

Function = TypeVar("Function", bound=Callable[..., Any])
LAUNCHING = threading.RLock()
"""Lock held during a launch, because Triton's autotuner keeps the arguments of the launch in its attributes."""
_keys.make_independent_of_order()
_thread = threading.local()  # devices: indices of the GPUs whose context has been current in this thread


def kept(function: Function) -> Function:
    """Decorator of a launcher: `kept.kept`. It does nothing in the interpreter, where no launch can be repeated."""
    return function if INTERPRET else _kept.kept(function)


def device_of(x: Tensor) -> AbstractContextManager[Any]:
    """Context in which this thread launches on the GPU of x, and no other thread launches a kernel of this folder.

    The interpreter needs no GPU, and `is_cuda` may be claimed there (`suite/frameworks/_no_gpu.py`).
    """
    if x.is_cuda and not INTERPRET:
        if x.device.index != torch.cuda.current_device():
            return _other_device(x.device)
        if x.device.index not in getattr(_thread, "devices", ()):
            make_context_current(x.device.index)
    return LAUNCHING


@contextmanager
def _other_device(device: torch.device) -> Iterator[None]:
    with LAUNCHING, torch.cuda.device(device):
        make_context_current(device.index)
        yield


def make_context_current(index: int) -> None:
    """Makes the context of a GPU current. A new thread has none, and TMA descriptors need one before the launch.

    Calls the driver, because torch.cuda.set_device does nothing if the index does not change, and because the runtime's
    functions with this effect are not allowed inside a CUDA graph capture. Raises: RuntimeError.
    """
    driver = ctypes.CDLL("libcuda.so.1")
    context, device, current = ctypes.c_void_p(), ctypes.c_int(), ctypes.c_int(-1)

    def call(name: str, *args: Any) -> None:
        if error := getattr(driver, name)(*args):
            raise RuntimeError(f"{name}: CUDA driver error {error} on device {index}")

    call("cuDeviceGet", ctypes.byref(device), index)
    call("cuCtxGetCurrent", ctypes.byref(context))
    if context.value is not None:
        call("cuCtxGetDevice", ctypes.byref(current))
    if current.value != device.value:
        call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        call("cuCtxSetCurrent", context)
    _thread.devices = {*getattr(_thread, "devices", ()), index}


def launch(kernel: Any, grid: Any, *args: Any, scratch_like: Tensor | None = None, **kwargs: Any) -> None:
    """kernel[grid](*args, **kwargs). Inside a CUDA graph capture the kernel must be tuned, compiled and loaded before.

    scratch_like: a tensor on the GPU that provides the memory that a kernel requests from Triton, such as for TMA
    descriptors that it makes itself.
    Raises: RuntimeError, before the launch, for the first call with such arguments inside a capture.
    """
    scratch: list[Tensor] = []
    call = _launch
    if scratch_like is not None:

        def allocate(size: int, *_: Any) -> Tensor:
            scratch.append(scratch_like.new_empty(size, dtype=torch.int8))
            return scratch[-1]

        context = copy_context()  # keeps the user's own allocator
        context.run(triton.set_allocator, allocate)
        call = partial(context.run, _launch)
    if (recording := _kept.recording()) is None:
        call(kernel, grid, args, kwargs)
        return
    grids: list[Any] = []

    def noted(meta: dict[str, Any]) -> Any:
        grids.append(grid(meta) if callable(grid) else grid)
        return grids[-1]

    compiled = call(kernel, noted, args, kwargs)
    arguments = {**dict(zip(kernel.arg_names, args, strict=False)), **kwargs}
    recording.launches.append(repeatable(compiled, grids[-1], arguments, scratch[-1] if scratch else None))


def _launch(kernel: Any, grid: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Launches the kernel and returns it in compiled form."""
    if not INTERPRET and torch.cuda.is_current_stream_capturing():
        return _launch_captured(kernel, grid, args, kwargs)
    return kernel[grid](*args, **kwargs)


def _launch_captured(kernel: Any, grid: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Launches a loaded kernel without timing it; see `launch`."""
    jit = kernel.fn if isinstance(kernel, Autotuner) else kernel
    run: Callable[..., Any] = jit.run

    def refuse(*_: Any) -> Any:
        raise RuntimeError(
            f"{jit.__name__}: first call with these arguments inside a CUDA graph capture; "
            "call it once before, to tune, compile and load it"
        )

    def run_loaded(*args: Any, **kwargs: Any) -> Any:
        compiled = run(*args, **{**kwargs, "warmup": True})
        return refuse() if compiled is None or compiled.module is None else run(*args, **kwargs)

    jit.run = run_loaded  # an attribute of the instance hides the method
    if kernel is not jit:
        kernel.prune_configs = refuse  # the autotuner calls it first if it has no answer
    try:
        return kernel[grid](*args, **kwargs)
    finally:
        del jit.run
        if kernel is not jit:
            del kernel.prune_configs


def persistent_grid(tiles: int, multiprocessors: int) -> tuple[int]:
    """Fewest programs with the same number of waves: idle multiprocessors save power."""
    waves = triton.cdiv(tiles, multiprocessors)
    return (triton.cdiv(tiles, waves),)


@triton.jit
def transpose_kernel(x_ptr, y_ptr, R, C, stride_r, stride_c, stride_y, BLOCK: tl.constexpr):
    """y = x^T: x [R, C], y [C, R] with rows stride_y elements apart. One program transposes one block."""
    tiles_c = tl.cdiv(C, BLOCK)
    r = tl.program_id(0) // tiles_c * BLOCK + tl.arange(0, BLOCK)
    c = tl.program_id(0) % tiles_c * BLOCK + tl.arange(0, BLOCK)
    inside = (r[:, None] < R) & (c[None, :] < C)
    x = tl.load(x_ptr + r[:, None].to(tl.int64) * stride_r + c[None, :].to(tl.int64) * stride_c, mask=inside)
    tl.store(y_ptr + c[None, :].to(tl.int64) * stride_y + r[:, None], x, mask=inside)


def column_major(x: Tensor) -> Tensor:
    """Copy of a float32 matrix with contiguous columns, each at a multiple of 16 bytes."""
    R, C = x.shape
    y = torch.empty((C, triton.cdiv(R, 4) * 4), dtype=x.dtype, device=x.device)[:, :R]
    blocks = triton.cdiv(R, 64) * triton.cdiv(C, 64)
    launch(transpose_kernel, (blocks,), x, y, R, C, *x.stride(), y.stride(0), BLOCK=64, num_warps=4)
    return y.t()
