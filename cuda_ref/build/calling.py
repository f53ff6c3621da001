"""Calls extern "C" functions of a .cu: converts arguments by the signature, passes the stream, raises launch errors.

ctypes passes `data_ptr()` of tensors, and the stream. A process binds a function once, so an edit of the .cu takes
effect in the next process.
"""

import contextlib
import ctypes
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

from cuda_ref._runtime import kept

from . import cache, compiler, counting, rewrite
from .cache import BuildError
from .counting import Counts
from .libraries import library, path_of

DTYPES = {torch.float32: 0, torch.float16: 1, torch.bfloat16: 2, torch.float64: 3}  # Dtype in common/common.cuh

_C_TYPES: dict[str, Any] = {
    "pointer": ctypes.c_void_p,
    "int64_t": ctypes.c_int64,
    "int": ctypes.c_int,
    "float": ctypes.c_float,
    "double": ctypes.c_double,
}


class CudaError(RuntimeError):
    """A launch was refused or failed. The message names the function, the error, grid, block and shared memory."""


class LaunchRecord(ctypes.Structure):
    """The struct of the same name in common/common.cuh."""

    _fields_ = [("grid", ctypes.c_uint * 3), ("block", ctypes.c_uint * 3), ("shared_bytes", ctypes.c_uint)]


def dtype_code(dtype: torch.dtype) -> int:
    """The code of a dtype in a .cu: Dtype in common/common.cuh."""
    return DTYPES[dtype]


def launch(source: str | Path, function: str, device: torch.device, *args: Any) -> None:
    """Calls an extern "C" function of a .cu on a device, on its current stream. Builds it first if necessary.

    On a CPU the kernel has run when this returns; on a GPU it is queued.

    Args:
        source: path of a .cu below cuda_ref/ without the suffix, such as `matmul/wgmma`, or the Path of any .cu.
        function: name of the extern "C" function.
        device: a CUDA device or the CPU.
        args: tensors are passed as pointers, None as a null pointer, ints and floats as the types in the signature.
            They are not checked: tensors must be on `device`, and large enough. The attribute `points_to` of a tensor
            of addresses has the tensors that lie there; checked launches may use these too.

    Raises:
        CudaError: if the launch fails.
        BuildError: if the source cannot be built.
        NotImplementedError: if the device cannot run it, or the function returns cudaErrorNotSupported.
    """
    bound = _bound[_host_target].get((source, function, device)) or _bind(source, function, device)
    bound(args)
    if (recording := kept.recording()) is not None and _host_target == compiler.HOST:  # checks need the tensors
        recording.launches.append(partial(bound.repeatable, args))


@contextlib.contextmanager
def checked() -> Iterator[None]:
    """Within it, launches on a CPU check each access of a kernel, if the compiler can: see host/checked.h.

    An access out of bounds and a race in shared memory raise `CudaError` with block, thread and line.
    """
    with _launches_of(compiler.CHECKED if compiler.can_check() else _host_target):
        yield


@contextlib.contextmanager
def counted() -> Iterator[list[Counts]]:
    """Within it, launches on a CPU are checked and counted: see host/counted.h. The list is filled at the end.

    Raises `BuildError` unless the compiler is GCC.
    """
    if not compiler.can_check():
        raise BuildError("only GCC can build kernels that count what they do; set CXX=g++")
    found: list[Counts] = []
    with _launches_of(compiler.COUNTED):
        _counts()  # what was counted before
        yield found
        found += _counts()


@contextlib.contextmanager
def _launches_of(target: str) -> Iterator[None]:
    """Within it, launches on a CPU run the libraries of a target."""
    global _host_target
    before, _host_target = _host_target, target
    kept.forget()  # kept calls launch the other target's library
    try:
        yield
    finally:
        _host_target = before


def _counts() -> list[Counts]:
    """The counts of all libraries since the last call."""
    loaded = {path_of(source): (source, bound.loaded) for (source, *_), bound in _bound[compiler.COUNTED].items()}
    found: list[Counts] = []
    with tempfile.TemporaryDirectory(prefix="counts-") as folder:
        path = Path(folder, "counts")
        for source, each in loaded.values():
            each.cuda_host_counts(os.fsencode(path))
            found += counting.read(path, library(source, compiler.COUNTED))
    return found


class Bound:
    """An extern "C" function of a loaded library, on a device."""

    def __init__(self, loaded: ctypes.CDLL, function: str, path: Path, device: torch.device) -> None:
        try:
            kinds = rewrite.parameters(path.read_text(), function)
            self.types = [_C_TYPES[kind] for kind in kinds]
            self.pointers = [kind == "pointer" for kind in kinds]
        except (LookupError, KeyError) as error:
            raise BuildError(f"{path}: {error}; parameters are pointers, {', '.join(list(_C_TYPES)[1:])}") from None
        self.loaded, self.function = loaded, function
        self.index = device.index if device.type == "cuda" else None
        self.what = f"{function} in {path.name}"
        self.wanted = f"{len(kinds)} arguments ({', '.join(kinds)})"
        self.address = loaded[function]
        self.address.argtypes = [*self.types, ctypes.c_void_p, ctypes.c_void_p]
        self.names: list[bytes] = []
        """Names of the parameters, if accesses are checked."""

    def __call__(self, args: tuple[Any, ...]) -> None:
        if self.index is not None and kept.current_device() != self.index:
            with torch.cuda.device(self.index):
                return self(args)
        if len(args) != len(self.types):
            raise TypeError(f"{self.what} takes {self.wanted}; got {len(args)}")
        if self.names:
            self._allow(args)
        record = LaunchRecord()
        values = [a.data_ptr() if p and a is not None else a for a, p in zip(args, self.pointers)]  # noqa: B905
        stream = 0 if self.index is None else kept.current_stream(self.index)
        code = self.address(*values, stream, ctypes.byref(record))
        if code != 0:
            raise _error(self.loaded, code, self.what, record)

    def _allow(self, args: tuple[Any, ...]) -> None:
        """Kernels may use the memory of these tensors and no other."""
        first = 1
        for name, value in zip(self.names, args, strict=True):
            for tensor in (value, *getattr(value, "points_to", ())) if isinstance(value, torch.Tensor) else ():
                last = sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))
                size = (last + 1) * tensor.element_size() if tensor.numel() else 0
                self.loaded.cuda_host_allow(ctypes.c_void_p(tensor.data_ptr()), ctypes.c_size_t(size), name, first)
                first = 0

    def repeatable(self, args: tuple[Any, ...], place: Callable[[torch.Tensor], int]) -> kept.Issue:
        """The same call at other addresses; arguments are converted once. Only one thread may call it at a time."""
        function = self.loaded[self.function]  # a second handle, without argtypes: takes C values without conversion
        values = [kind(None if p else a) for kind, a, p in zip(self.types, args, self.pointers, strict=True)]
        addressed = [(values[i], place(a)) for i, a in enumerate(args) if self.pointers[i] and a is not None]
        given_stream, record = ctypes.c_void_p(), LaunchRecord()
        given = (*values, given_stream, ctypes.byref(record))

        def issue(addresses: Sequence[int], stream: int) -> int:
            for value, at in addressed:
                value.value = addresses[at]
            given_stream.value = stream
            code: int = function(*given)
            return code

        return issue


Key = tuple[str | Path, str, torch.device]
_bound: dict[str, dict[Key, Bound]] = {target: {} for target in compiler.HOST_TARGETS}
"""By the target of launches on a CPU."""
_host_target = compiler.HOST


def _bind(source: str | Path, function: str, device: torch.device) -> Bound:
    """Binds a function to a device. Computes once everything that is the same for all calls."""
    if device.type == "cuda":
        if device.index is None:  # the current device, which may change between calls
            device = torch.device("cuda", torch.cuda.current_device())
        target = compiler.arch_of(*torch.cuda.get_device_capability(device))
    elif device.type == "cpu":
        target = _host_target
    else:
        raise NotImplementedError(f"{function}: a .cu runs on 'cuda' and, emulated, on 'cpu' devices; got {device}")
    known = _bound[_host_target]
    if bound := known.get((source, function, device)):
        return bound
    if device.type == "cuda" and torch.cuda.is_current_stream_capturing():
        raise CudaError(
            f"{function}: first call inside a CUDA graph capture; call it once before, to build and load it"
        )

    bound = known[source, function, device] = Bound(_load(source, target), function, path_of(source), device)
    if target in (compiler.CHECKED, compiler.COUNTED):
        bound.loaded.cuda_host_moved(os.fsencode(library(source, target)))  # the build loads it from elsewhere
        bound.names = [each.encode() for each in rewrite.parameter_names(path_of(source).read_text(), function)]
    return bound


def _error(loaded: ctypes.CDLL, code: int, what: str, record: LaunchRecord) -> CudaError | NotImplementedError:
    """The exception for an error code; `cudaErrorNotSupported` says that the function does not cover the case."""
    for each in (loaded.cudaGetErrorName, loaded.cudaGetErrorString):
        each.argtypes, each.restype = [ctypes.c_int], ctypes.c_char_p
    name, text = loaded.cudaGetErrorName(code).decode(), loaded.cudaGetErrorString(code).decode()
    if name == "cudaErrorNotSupported":
        return NotImplementedError(f"{what} declines the case: {name}, {text}")
    return CudaError(
        f"{what}: {name} ({code}): {text}; grid {tuple(record.grid)}, block {tuple(record.block)}, "
        f"{record.shared_bytes} bytes of dynamic shared memory"
    )


def _load(source: str | Path, target: str) -> ctypes.CDLL:
    path = library(source, target)
    try:
        return ctypes.CDLL(str(path))
    except OSError:  # for example built for another system
        cache.discard(path.parent.name)
        return ctypes.CDLL(str(library(source, target)))


def launched() -> list[tuple[str | Path, str]]:
    """The sources whose functions this process has launched on a GPU, each with the architecture it is built for."""
    devices = [(source, device) for source, _, device in _bound[compiler.HOST] if device.type == "cuda"]
    return list(dict.fromkeys((s, compiler.arch_of(*torch.cuda.get_device_capability(d))) for s, d in devices))
