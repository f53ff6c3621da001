"""The interface between the suite and a framework: `Adapter`, and its base for frameworks that take torch tensors."""

from __future__ import annotations

import contextlib
import importlib.util
import math
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from types import MappingProxyType, ModuleType
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    import torch

    from suite.hardware.device import Device

from suite.core import package as _package
from suite.core.integers import cdiv
from suite.hardware.environment import package_version

LATE_CYCLES = 10_000_000
"""Delay of `late_inputs` in GPU cycles: 5 to 7 ms, longer than a launcher takes to launch its kernels."""

CYCLES_PER_US = 2000
"""GPU cycles of a delay: a GPU of less than 2 GHz waits longer."""


class Adapter(ABC):
    """One framework: the packages it needs, the mode it runs in, and the conversion of its arrays to torch and back."""

    name: ClassVar[str]
    """The name of its file or package in `frameworks/`."""
    folder: ClassVar[str]
    """The top-level folder of its implementations."""
    rank: ClassVar[int] = 100
    """Sort key of the frameworks in lists and tables."""
    packages: ClassVar[tuple[str, ...]]
    """The packages that it imports, by import name."""
    extra: ClassVar[str] = ""
    """The extra of the suite's package that installs them; empty if the suite itself needs them."""
    code_kinds: ClassVar[tuple[str, ...]] = ()
    """The kinds of code that `code` returns in native mode."""
    can_count: ClassVar[bool] = False
    """True if `counts` can count what its kernels do without a GPU."""
    builds: ClassVar[Mapping[str, str]] = MappingProxyType({})
    """Builds to make ahead of a run, by device type: `once` for all cases; once for each `arithmetic`, that is
    dtype and precision; `each` case and telling case by itself; or `telling` cases alone, for a compiler that chooses
    by times."""
    devices: ClassVar[tuple[str, ...]] = ("cpu", "cuda")
    array: ClassVar[str] = "array"
    """Name of the type that an implementation returns, for messages."""
    stand_ins: ClassVar[Mapping[str, str]] = MappingProxyType({})
    """Dtypes that the framework's results may have in place of others that it lacks."""

    def missing(self, device: Device) -> str | None:
        """Return why this framework cannot run on `device`, and the remedy; None if it can. Imports no framework."""
        absent = [package for package in self.packages if importlib.util.find_spec(package) is None]
        if absent:
            return f"{', '.join(absent)} not installed: {self.install_command(device)}"
        return None

    def install_command(self, device: Device) -> str:
        """The command that installs the packages of this framework for `device`."""
        if device.type == "cuda":
            return _package.install_command("gpu", "constraints-gpu.txt")
        return _package.install_command(self.extra, "constraints.txt")

    def versions(self) -> str:
        """`torch 2.13.0, triton 3.7.1`, from the packages' metadata."""
        known = [(package, package_version(package)) for package in self.packages]
        return ", ".join(f"{package} {version}" for package, version in known if version)

    def mode(self, device: Device) -> str:
        """`native`, `interpreted` or `emulated`. Only native rows are timed and ranked."""
        return "native"

    def prepare(self, device: Device) -> None:
        """Set environment variables that the framework reads at import. Called once in a new worker process."""

    def has_own_threads(self) -> bool:
        """True if it was in use before `prepare` and keeps the number of threads on a CPU that it began with."""
        return False

    def watch_cache(self) -> Callable[[], str]:
        """Begin to watch compilations. The returned function ends the watch and returns its outcome.

        `hit`: all programs came from a cache kept between processes. `miss`: some did not. Empty: nothing was compiled,
        or the framework does not report it.
        """
        return lambda: ""

    def checks_memory(self, device: Device) -> AbstractContextManager[None]:
        """Within it, a call checks each access to memory, if the framework can do this on `device`."""
        return nullcontext()

    def counts(self, call: Callable[[], object]) -> dict[str, int | float | None]:
        """Make a call on a CPU and count what its kernels do: columns `count_...` of a row. See `can_count`."""
        raise NotImplementedError(f"{self.name} runs the kernels of a library or of a compiler")

    def to_native(self, tensor: torch.Tensor) -> Any:
        """The framework's array with the same strides, over the same memory if possible."""
        return tensor

    def copies(self, buffers: Sequence[Any]) -> bool:
        """True if arrays of some of `buffers`, which are torch tensors, may have memory of their own."""
        return not all(buffer.is_contiguous() for buffer in buffers)

    def shares_memory(self, array: Any, tensor: torch.Tensor) -> bool:
        """True if `array`, made of `tensor` by `to_native`, shares its memory and so follows its later values."""
        return True

    def is_array(self, result: Any) -> bool:
        """True if `result` is exactly of the framework's array type; a subclass may override what the suite reads."""
        return True

    def described(self, result: Any) -> str:
        """Describe `result`, for the message that it is no array of the framework."""
        return f"a {type(result).__name__}"

    def to_torch(self, array: Any) -> Any:
        """The framework's array as a torch tensor over the same memory, complete for torch's current stream."""
        return array

    def form(self, array: Any) -> tuple[tuple[int, ...], str, tuple[int, ...]]:
        """Shape, dtype and strides (in elements) of an array, even of one that torch cannot represent."""
        tensor = self.to_torch(array)
        return tuple(tensor.shape), str(tensor.dtype).removeprefix("torch."), tuple(tensor.stride())

    def poisoned(
        self, call: Callable[[], Any], shapes: Sequence[tuple[int, ...]], dtypes: Sequence[str], device: torch.device
    ) -> Any:
        """The result of `call`, made while new allocations hold NaN. `shapes` and `dtypes` are those of the results."""
        return call()

    def late_inputs(self, device: torch.device) -> AbstractContextManager[None]:
        """While open, copies to the inputs are delayed on the current stream; other streams read the old values."""
        return contextlib.nullcontext()

    def limits(self, device: torch.device) -> Mapping[str, tuple[str, ...]]:
        """Families of inputs for which the framework itself gives wrong results on a device, each with its dtypes."""
        return {}

    def most_rows(self, device: torch.device) -> int | None:
        """Largest size of an axis but the last of a result in a telling case: programs of one row may be slow.

        None: any.
        """
        return None

    def without_tuning(self, module: ModuleType) -> AbstractContextManager[None]:
        """While open, autotuned kernels of `module` run new sizes with the configuration of their last launch."""
        return contextlib.nullcontext()

    def building(self, module: ModuleType) -> AbstractContextManager[None]:
        """While open, calls of `module`'s function build all candidates, and choose none by its time."""
        return contextlib.nullcontext()

    def importing(self) -> AbstractContextManager[None]:
        """While open, a user's file of this framework is imported. Its packages are imported before."""
        return contextlib.nullcontext()

    def as_called(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function of a user's file in the form in which it is called in this mode."""
        return function

    def over_ranks(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """A function of one rank's arrays that calls `function` with the group of all ranks.

        All ranks call this in the same order, in processes that are joined by torch.distributed.
        """
        raise NotImplementedError(f"{self.name} has no operations over several processes")

    def gate(self, device: torch.device, delay_us: float) -> Callable[[], object]:
        """A function that queues a wait for the devices of all ranks, in front of the work of later calls.

        The wait takes at least about `delay_us`, in which the host queues the call behind it.
        """
        raise NotImplementedError(f"{self.name} has no operations over several processes")

    def called_with(self, function: Callable[..., Any], operands: Sequence[torch.Tensor]) -> Callable[..., Any]:
        """The function in the mode of the framework that operands like these need."""
        return function

    def forget_calls(self) -> None:
        """Make the next calls run like first calls. Compiled and tuned kernels are kept."""

    def capture(self, issue: Callable[[], object], count: int) -> Callable[[], None] | None:
        """Capture `count` calls into a CUDA graph and return a function that replays it; None if that fails."""
        return None

    @abstractmethod
    def wait(self, result: Any) -> None:
        """Return when `result` is ready."""

    def peak_bytes(
        self, function: Callable[..., Any], inputs: tuple[Any, ...], arguments: dict[str, Any]
    ) -> int | None:
        """Bytes of device memory that one call needs beyond its inputs and its result; None if unknown."""
        return None

    def code(
        self,
        function: Callable[..., Any],
        inputs: tuple[Any, ...],
        arguments: dict[str, Any],
        kinds: Sequence[str],
    ) -> dict[str, str]:
        """The code that calls in this process have compiled, by file name, in those `kinds` that are `code_kinds`.

        `function`, `inputs` and `arguments` are those of an earlier call.
        """
        return {}

    def configuration(self, module: ModuleType, kernels: Collection[str] = ()) -> str:
        """The configurations that tuning chose for the last call of `module`'s function; empty if nothing was tuned.

        kernels: only of kernels whose names contain one of these; empty for all.
        """
        return ""


class TorchAdapter(Adapter):
    """Base of the frameworks whose implementations take torch tensors."""

    array = "strided torch.Tensor"

    def copies(self, buffers: Sequence[Any]) -> bool:
        return False

    def is_array(self, result: Any) -> bool:
        import torch

        return type(result) is torch.Tensor and result.layout is torch.strided and not _lazy_bit(result)

    def described(self, result: Any) -> str:
        import torch

        if type(result) is torch.Tensor and (bit := _lazy_bit(result)):
            return f"a tensor with the {bit} bit: its memory holds other values, until resolve_{bit}() writes its own"
        return super().described(result)

    def poisoned(
        self, call: Callable[[], Any], shapes: Sequence[tuple[int, ...]], dtypes: Sequence[str], device: torch.device
    ) -> Any:
        """Uninitialised tensors of this thread hold NaN; those of a result's size lie between guard bands.

        Code compiled by TorchInductor calls the allocator itself. For it, on a GPU, blocks of the results' sizes are
        filled with NaN and freed first: the caching allocator tends to return them next.
        """
        import torch

        from suite.frameworks._poison import Poison, poison

        forms = [(shape, getattr(torch, dtype)) for shape, dtype in zip(shapes, dtypes, strict=True)]
        result_bytes = frozenset(math.prod(shape) * dtype.itemsize for shape, dtype in forms)
        if device.type == "cuda":
            [torch.full(shape, poison(dtype), dtype=dtype, device=device) for shape, dtype in forms]
        try:
            with Poison(result_bytes):
                return call()
        except RuntimeError as error:
            if "Creating a new Tensor subclass" not in str(error):
                raise
        return call()  # torch makes no tensor subclass, such as CausalBias, under a dispatch mode

    @contextlib.contextmanager
    def late_inputs(self, device: torch.device) -> Iterator[None]:
        """Make a new stream of the GPU the current one, and begin it with a delay of LATE_CYCLES.

        A kernel on another stream does not wait for it: torch's streams do not synchronize with the default stream
        either. On a CPU everything runs in program order, so there is nothing to delay.
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

    def importing(self) -> AbstractContextManager[None]:
        """Without a GPU, what the file puts on `cuda` goes to the CPU."""
        import torch

        from suite.frameworks._no_gpu import stand_in

        return contextlib.nullcontext() if torch.cuda.is_available() else stand_in()

    def missing(self, device: Device) -> str | None:
        absent = super().missing(device)
        if absent is None and device.type == "cuda" and torch_is_cpu_build():
            return f"torch is a CPU build: {self.install_command(device)}"
        return absent

    def wait(self, result: Any) -> None:
        import torch

        for each in result if isinstance(result, tuple | list) else (result,):
            if isinstance(each, torch.Tensor) and each.is_cuda:
                torch.cuda.synchronize(each.device)
                return

    def over_ranks(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """`function` with the process group of all ranks."""
        import torch.distributed as dist

        return partial(function, group=dist.group.WORLD)

    def gate(self, device: torch.device, delay_us: float) -> Callable[[], object]:
        """The wait is an all-reduce of one number by NCCL, after the delay."""
        import torch
        import torch.distributed as dist

        token = torch.zeros(1, device=device)

        def wait_for_all() -> None:
            torch.cuda._sleep(round(CYCLES_PER_US * delay_us))
            dist.all_reduce(token)

        return wait_for_all

    def forget_calls(self) -> None:
        """Drop the launches that the kernel folder keeps of earlier calls."""
        if (kept := sys.modules.get(_package.qualified(f"{self.folder}._runtime.kept"))) is not None:
            kept.forget()

    def capture(self, issue: Callable[[], object], count: int) -> Callable[[], None] | None:
        """Capture on a separate stream, as torch requires. Other threads may use the device meanwhile."""
        import torch

        graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize()
        try:
            with torch.cuda.stream(torch.cuda.Stream()):
                graph.capture_begin(capture_error_mode="thread_local")
                try:
                    for _ in range(count):
                        issue()
                finally:
                    graph.capture_end()
        except RuntimeError:  # the call waits for the device, or a capture does not allow it
            torch.cuda.synchronize()
            # torch still believes that its generator is captured, and would refuse all random numbers from now on.
            generator = torch.cuda.default_generators[torch.cuda.current_device()]
            generator.graphsafe_set_state(generator.clone_state())
            return None
        replay: Callable[[], None] = graph.replay
        return replay

    def peak_bytes(
        self, function: Callable[..., Any], inputs: tuple[Any, ...], arguments: dict[str, Any]
    ) -> int | None:
        """Read the counters of torch's caching allocator, which Triton and the CUDA launchers use too."""
        import torch

        if not inputs[0].is_cuda:
            return None
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        result = function(*inputs, **arguments)
        torch.cuda.synchronize()
        grown = torch.cuda.max_memory_allocated() - before
        results = result if isinstance(result, tuple | list) else (result,)
        return max(0, int(grown) - sum(_allocated(each.numel() * each.element_size()) for each in results))


def _lazy_bit(tensor: torch.Tensor) -> str:
    """The bit by which torch negates or conjugates a tensor without writing it, `neg` or `conj`; empty if unset."""
    return "neg" if tensor.is_neg() else "conj" if tensor.is_conj() else ""


def _allocated(size: int) -> int:
    """Bytes that torch's allocator returns for a request of `size`: a multiple of 512."""
    return cdiv(size, 512) * 512


def torch_is_cpu_build() -> bool:
    """True if the installed torch has no CUDA, by the metadata of its package. Does not import torch."""
    return (package_version("torch") or "+cpu").endswith("+cpu")
