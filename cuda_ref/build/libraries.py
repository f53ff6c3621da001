"""Builds a .cu with torch's load_inline, by nvcc for a GPU or by the C++ compiler for the CPU, and calls its functions.

    build.launch("vector_add/vector_add", "vector_add", a.device, a, b, out, out.numel(), build.dtype_code(out.dtype))

The build includes no headers of torch, which take most of a minute to compile, and no bindings: ctypes passes
`data_ptr()` and the current stream according to the extern "C" signature in the .cu. A library is built once and kept
in a private cache (`cache.py`). Its key is a hash of all that it depends on: the text with its local headers, flags,
compilers, architecture. A process binds a function once; an edit of the .cu takes effect in the next process.
"""

import ctypes
import hashlib
import os
import platform
import re
import shlex
import threading
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

from cuda_ref._runtime import kept

from . import cache, compiler, rewrite
from .cache import BuildError
from .compiler import Resources, missing, newest_arch

__all__ = [
    "DTYPES",
    "BuildError",
    "CudaError",
    "Resources",
    "compile_only",
    "dtype_code",
    "launch",
    "launched",
    "library",
    "missing",
    "newest_arch",
    "ptx",
    "requires",
    "resources",
    "sass",
    "supports",
]

HERE = Path(__file__).resolve().parents[1]
HOST_HEADERS = HERE / "host"
DTYPES = {torch.float32: 0, torch.float16: 1, torch.bfloat16: 2}  # Dtype in common/common.cuh

_C_TYPES: dict[str, Any] = {
    "pointer": ctypes.c_void_p,
    "int64_t": ctypes.c_int64,
    "int": ctypes.c_int,
    "float": ctypes.c_float,
    "double": ctypes.c_double,
}
_building = threading.Lock()


class CudaError(RuntimeError):
    """A launch was refused or failed. The message has the function, the error, grid, block and shared memory."""


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
        source: path of a .cu below cuda_ref/ without the suffix, as `matmul/wgmma`, or the Path of any .cu.
        function: name of the extern "C" function.
        device: a CUDA device or the CPU.
        args: tensors are passed as pointers, None as a null pointer, ints and floats as the types in the signature.
            They are not checked: tensors must be on `device`, and large enough.

    Raises:
        CudaError: if the launch fails.
        BuildError: if the source cannot be built.
        NotImplementedError: if the device cannot run it.
    """
    bound = _bound.get((source, function, device)) or _bind(source, function, device)
    bound(args)
    if (recording := kept.recording()) is not None:
        recording.launches.append(partial(bound.repeatable, args))


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

    def __call__(self, args: tuple[Any, ...]) -> None:
        if self.index is not None and kept.current_device() != self.index:
            with torch.cuda.device(self.index):
                return self(args)
        if len(args) != len(self.types):
            raise TypeError(f"{self.what} takes {self.wanted}; got {len(args)}")
        record = LaunchRecord()
        values = [a.data_ptr() if p and a is not None else a for a, p in zip(args, self.pointers)]  # noqa: B905
        stream = 0 if self.index is None else kept.current_stream(self.index)
        code = self.address(*values, stream, ctypes.byref(record))
        if code != 0:
            raise _error(self.loaded, code, self.what, record)

    def repeatable(self, args: tuple[Any, ...], place: Callable[[torch.Tensor], int]) -> kept.Issue:
        """The same call at other addresses: the arguments are converted once, and stay. For one thread at a time."""
        function = self.loaded[self.function]  # one without argtypes: it takes values of C types as they are
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


_bound: dict[tuple[str | Path, str, torch.device], Bound] = {}


def _bind(source: str | Path, function: str, device: torch.device) -> Bound:
    """A function on a device. What is the same for all calls is determined here, once."""
    if device.type == "cuda":
        if device.index is None:  # the current one, which may change from call to call
            device = torch.device("cuda", torch.cuda.current_device())
        target = compiler.arch_of(*torch.cuda.get_device_capability(device))
    elif device.type == "cpu":
        target = "host"
    else:
        raise NotImplementedError(f"{function}: a .cu runs on 'cuda' and, emulated, on 'cpu' devices; got {device}")
    if bound := _bound.get((source, function, device)):
        return bound
    if device.type == "cuda" and torch.cuda.is_current_stream_capturing():
        raise CudaError(
            f"{function}: first call inside a CUDA graph capture; call it once before, to build and load it"
        )

    bound = _bound[source, function, device] = Bound(_load(source, target), function, _path(source), device)
    return bound


def _error(loaded: ctypes.CDLL, code: int, what: str, record: LaunchRecord) -> CudaError:
    for each in (loaded.cudaGetErrorName, loaded.cudaGetErrorString):
        each.argtypes, each.restype = [ctypes.c_int], ctypes.c_char_p
    name, text = loaded.cudaGetErrorName(code).decode(), loaded.cudaGetErrorString(code).decode()
    return CudaError(
        f"{what}: {name} ({code}): {text}; grid {tuple(record.grid)}, block {tuple(record.block)}, "
        f"{record.shared_bytes} bytes of dynamic shared memory"
    )


def _load(source: str | Path, target: str) -> ctypes.CDLL:
    path = library(source, target)
    try:
        return ctypes.CDLL(str(path))
    except OSError:  # built for another system, for example
        cache.discard(path.parent.name)
        return ctypes.CDLL(str(library(source, target)))


def library(source: str | Path, target: str) -> Path:
    """Path of the shared library of a .cu for "host" or an architecture such as "sm_90a", built unless it is cached."""
    text = _prepared(source, target)
    arguments: dict[str, Any]
    if target == "host":
        try:
            text, flags = rewrite.to_host(text), compiler.HOST_FLAGS
        except ValueError as error:
            raise BuildError(f"{_path(source)}: {error}") from None
        headers = [f"{each.name}\n{each.read_text()}" for each in sorted(HOST_HEADERS.glob("*.h"))]
        arguments = {"cpp_sources": text, "extra_cflags": flags, "extra_include_paths": [str(HOST_HEADERS)]}
    else:
        headers, flags = [], [*compiler.NVCC_FLAGS, compiler.arch_flag(target)]
        arguments = {"cpp_sources": "", "cuda_sources": text, "extra_cuda_cflags": flags}
    key = _key(source, target, [text, *headers, *flags, *compiler.LINK_FLAGS])
    with _building:
        return cache.entry(key, lambda folder: _build(folder, source, target, arguments)) / "library.so"


def _build(folder: Path, source: str | Path, target: str, arguments: dict[str, Any]) -> None:
    from torch.utils import cpp_extension  # the import takes half a second

    # ninja may be installed beside this Python only. The key has the dependencies, so nvcc need not list them.
    changed = {"PATH": compiler.search_path(), "TORCH_EXTENSION_SKIP_NVCC_GEN_DEPENDENCIES": "1"}
    if len(compiler.cxx_command()) > 1:
        changed["CXX"] = _one_program(folder, compiler.cxx_command())
    before = {name: os.environ.get(name) for name in changed}
    os.environ.update(changed)
    try:
        cpp_extension.load_inline(
            name="library",
            functions=None,
            no_implicit_headers=True,
            is_python_module=False,
            build_directory=str(folder),
            extra_ldflags=list(compiler.LINK_FLAGS),
            **arguments,
        )
    except (RuntimeError, OSError) as error:
        name, message = compiler.compiler_for(target), compiler.useful(str(error))
        raise BuildError(f"{_path(source)}: {name} failed for {target}:\n{message}") from None
    finally:
        for variable, value in before.items():
            if value is None:
                del os.environ[variable]
            else:
                os.environ[variable] = value
    # load_inline may add a version to the name.
    built = max(folder.glob("library*.so"), key=lambda each: each.stat().st_mtime_ns)
    built.rename(folder / "library.so")
    for each in folder.glob("*.o"):
        each.unlink()


def _one_program(folder: Path, command: list[str]) -> str:
    """Path of a script that runs `command`: torch takes a compiler for one word."""
    script = folder / "g++"  # torch expects such a name
    script.write_text(f'#!/bin/sh\nexec {shlex.join(command)} "$@"\n')
    script.chmod(0o700)
    return str(script)


def requires(source: str | Path) -> str | None:
    """The architecture that a .cu requires (`// requires: sm_90a`); None if it runs on all, and on the CPU."""
    return rewrite.requirement(_path(source).read_text())


def supports(source: str | Path, target: str) -> bool:
    """Whether a .cu can be built for "host" or for an architecture, according to its `// requires:` line."""
    required = requires(source)
    return required is None if target == "host" else compiler.satisfies(target, required)


def compile_only(source: str | Path, arch: str) -> str:
    """Compiles the device code of a .cu for `arch`, without a GPU, and returns the report of `ptxas -v`."""
    text = _prepared(source, arch)
    key = _key(source, arch, ["cubin", text, *compiler.NVCC_FLAGS])
    return compiler.device_code(key, text, arch).joinpath("ptxas.txt").read_text()


def resources(source: str | Path, arch: str) -> list[Resources]:
    """Registers, stack and spills of all functions in a .cu, compiled for `arch`."""
    return compiler.parse_resources(compile_only(source, arch), arch)


def launched() -> list[tuple[str | Path, str]]:
    """The sources of which this process has launched functions on a GPU, each with the architecture it is built for."""
    devices = [(source, device) for source, _, device in _bound if device.type == "cuda"]
    return list(dict.fromkeys((s, compiler.arch_of(*torch.cuda.get_device_capability(d))) for s, d in devices))


def ptx(source: str | Path, arch: str) -> str:
    """The PTX of all kernels in a .cu, compiled for `arch`, without a GPU. A built library has none."""
    text = _prepared(source, arch)
    key = _key(source, arch, ["ptx", text, *compiler.NVCC_FLAGS])
    return compiler.device_code(key, text, arch, "ptx").joinpath("kernel.ptx").read_text()


def sass(source: str | Path, arch: str) -> str:
    """The machine code of all kernels in the library of a .cu."""
    return compiler.disassembled(library(source, arch))


def _prepared(source: str | Path, target: str) -> str:
    """The text of a .cu with its local headers. Raises unless it can be built for the target."""
    path = _path(source)
    if not supports(source, target):
        where = "the CPU" if target == "host" else target
        raise NotImplementedError(f"{path.name} uses instructions of {requires(source)}, which {where} does not have")
    if problem := missing("cpu" if target == "host" else "cuda"):
        raise BuildError(f"{path}: {problem}")
    return rewrite.expand(path, [HERE, HERE / "common"])


def _key(source: str | Path, target: str, parts: list[str]) -> str:
    """The key of a cached result: name, target, and a hash of all that the result depends on."""
    compilers = [compiler.identity(each) for each in compiler.compilers(target)]
    given = [shlex.join(compiler.cxx_command()), os.environ.get("CC", "")]  # load_inline passes CC to nvcc
    everything = "\0".join([*parts, *compilers, *given, target, platform.machine(), platform.system()])
    everything = everything.replace(str(HERE), HERE.name)  # of the lines' origin: copies of the tree share results
    name = re.sub(r"\W", "_", _path(source).stem if isinstance(source, Path) else source, flags=re.ASCII)[:64]  # part of a path and of a ninja file
    return f"{name}-{target}-{hashlib.sha256(everything.encode()).hexdigest()[:24]}"


def _path(source: str | Path) -> Path:
    return source if isinstance(source, Path) else HERE / f"{source}.cu"
