"""What the runner asks of a framework."""

from __future__ import annotations

import contextlib
import importlib.util
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    import torch

    from suite.hardware.device import Device

from suite.hardware.environment import package_version

GPU_EXTRA = "pip install -c constraints.txt '.[gpu]'"
CPU_EXTRA = "pip install -c constraints.txt ."
LATE_CYCLES = 10_000_000
"""Cycles of the GPU by which `late_inputs` delays: 5 to 7 ms, time enough for a launcher to launch its kernels."""


class Adapter(ABC):
    """Adapter of one framework: is it here, in which mode does it run, and how do arrays cross to torch and back."""

    name: ClassVar[str]
    folder: ClassVar[str]
    rank: ClassVar[int] = 100
    """Place among the frameworks in lists and tables, the smallest first."""
    packages: ClassVar[tuple[str, ...]]
    devices: ClassVar[tuple[str, ...]] = ("cpu", "cuda")
    array: ClassVar[str] = "array"
    """What an implementation returns, in words."""

    def missing(self, device: Device) -> str | None:
        """What has to be installed before this framework runs on `device`, and how; None if nothing. Imports little."""
        absent = [package for package in self.packages if importlib.util.find_spec(package) is None]
        if absent:
            return f"{', '.join(absent)} not installed: {CPU_EXTRA if device.type == 'cpu' else GPU_EXTRA}"
        return None

    def versions(self) -> str:
        """`torch 2.13.0, triton 3.7.1`, from the packages' metadata."""
        known = [(package, package_version(package)) for package in self.packages]
        return ", ".join(f"{package} {version}" for package, version in known if version)

    def mode(self, device: Device) -> str:
        """`native`, `interpreted` or `emulated`. Only native rows are timed and ranked."""
        return "native"

    def prepare(self, device: Device) -> None:
        """Set what must be set before the framework is imported. Called once in a fresh worker process."""

    def equip(self, module: ModuleType) -> None:
        """Give a module of the folder, just imported, what was found out for it on this device."""

    def to_native(self, tensor: torch.Tensor) -> Any:
        """The framework's array over the same memory where that is possible, strides included."""
        return tensor

    def is_array(self, result: Any) -> bool:
        """Whether `result` is exactly the framework's array: a subclass may answer questions about itself at will."""
        return True

    def to_torch(self, array: Any) -> Any:
        """The framework's array as a torch tensor over the same memory, ready where the current stream gets to it."""
        return array

    def form(self, array: Any) -> tuple[tuple[int, ...], str, tuple[int, ...]]:
        """Shape, dtype, and strides in elements of an array that torch may have no equal of."""
        tensor = self.to_torch(array)
        return tuple(tensor.shape), str(tensor.dtype).removeprefix("torch."), tuple(tensor.stride())

    def poisoned(self, call: Callable[[], Any], shape: tuple[int, ...], dtype: str, device: torch.device) -> Any:
        """What `call` returns, whose allocations hold NaN until they are written; above all that of its result."""
        return call()

    def late_inputs(self, device: torch.device) -> AbstractContextManager[None]:
        """While this is open, what is copied to inputs gets there after a delay, in the order of the current stream."""
        return contextlib.nullcontext()

    @abstractmethod
    def wait(self, result: Any) -> None:
        """Return when `result` is ready."""

    def peak_bytes(
        self, function: Callable[..., Any], inputs: tuple[Any, ...], arguments: dict[str, Any]
    ) -> int | None:
        """Device memory that one call takes beyond its inputs and its result; None where it cannot be known."""
        return None

    def configuration(self, module: ModuleType) -> str:
        """What tuning chose for the last call of `module`'s function; empty if nothing was tuned."""
        return ""


class TorchAdapter(Adapter):
    """Base of the frameworks whose implementations take torch tensors."""

    array = "strided torch.Tensor"

    def is_array(self, result: Any) -> bool:
        import torch

        return type(result) is torch.Tensor and result.layout is torch.strided and not result.is_neg()

    def poisoned(self, call: Callable[[], Any], shape: tuple[int, ...], dtype: str, device: torch.device) -> Any:
        """Every tensor that torch hands out uninitialised in this thread holds NaN.

        Code compiled by TorchInductor asks the allocator itself. On a GPU that has memory of the result's size at hand
        which held NaN last, and tends to give it out next.
        """
        import torch

        from suite.frameworks._poison import Poison

        if device.type == "cuda":
            torch.full(shape, torch.nan, dtype=getattr(torch, dtype), device=device)
        try:
            with Poison():
                return call()
        except RuntimeError as error:
            if "Creating a new Tensor subclass" not in str(error):
                raise
        return call()  # torch cannot make tensors of such classes, CausalBias for one, under a dispatch mode

    @contextlib.contextmanager
    def late_inputs(self, device: torch.device) -> Iterator[None]:
        """On a GPU the current stream is a new one, which is busy for LATE_CYCLES first.

        A kernel on any other stream does not wait for it: torch's streams are independent also of the device's default
        stream. On a CPU everything happens in the order of the program, and there is nothing to delay.
        """
        if device.type != "cuda":
            yield
            return
        import torch

        torch.cuda.synchronize(device)
        with torch.cuda.stream(torch.cuda.Stream(device)):
            torch.cuda._sleep(LATE_CYCLES)
            try:
                yield
            finally:
                torch.cuda.synchronize(device)

    def missing(self, device: Device) -> str | None:
        absent = super().missing(device)
        if absent is None and device.type == "cuda" and torch_is_cpu_build():
            return f"torch is a CPU build: {GPU_EXTRA}"
        return absent

    def wait(self, result: Any) -> None:
        import torch

        if isinstance(result, torch.Tensor) and result.is_cuda:
            torch.cuda.synchronize(result.device)

    def peak_bytes(
        self, function: Callable[..., Any], inputs: tuple[Any, ...], arguments: dict[str, Any]
    ) -> int | None:
        """From the counters of torch's allocator, which serves Triton and CUDA as well."""
        import torch

        if not inputs[0].is_cuda:
            return None
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        result = function(*inputs, **arguments)
        torch.cuda.synchronize()
        grown = torch.cuda.max_memory_allocated() - before
        return max(0, int(grown) - _allocated(result.numel() * result.element_size()))


def _allocated(size: int) -> int:
    """What torch's allocator hands out for `size` bytes: a multiple of 512."""
    return -(-size // 512) * 512


def torch_is_cpu_build() -> bool:
    """Read from the package's metadata, so that torch need not be imported."""
    return (package_version("torch") or "+cpu").endswith("+cpu")
