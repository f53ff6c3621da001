"""What the runner asks of a framework."""

from __future__ import annotations

import importlib.util
from abc import ABC, abstractmethod
from collections.abc import Callable
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    import torch

    from suite.device import Device

from suite.hardware.record import package_version

GPU_EXTRA = "pip install -c constraints.txt '.[gpu]'"
CPU_EXTRA = "pip install -c constraints.txt ."


class Backend(ABC):
    """Adapter of one framework: is it here, in which mode does it run, and how do arrays cross to torch and back."""

    name: ClassVar[str]
    folder: ClassVar[str]
    packages: ClassVar[tuple[str, ...]]
    devices: ClassVar[tuple[str, ...]] = ("cpu", "cuda")

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

    def to_native(self, tensor: torch.Tensor) -> Any:
        """The framework's array over the same memory where that is possible, strides included."""
        return tensor

    def to_torch(self, array: Any) -> Any:
        """The result as a torch tensor; anything else is passed on for the verdict to refuse."""
        return array

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


class TorchBackend(Backend):
    """Base of the frameworks whose implementations take torch tensors."""

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
