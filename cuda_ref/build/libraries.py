"""Libraries of a .cu, built by torch's load_inline: with nvcc for a GPU, or with the C++ compiler for the CPU.

The build includes no headers of torch, which take most of a minute to compile, and no bindings: `calling.py` calls the
functions by ctypes. A library is built once and kept in a private cache (`cache.py`). Its key is a hash of its
inputs: the text with its local headers, flags, compilers, architecture.
"""

import hashlib
import os
import platform
import re
import shlex
import threading
from pathlib import Path
from typing import Any

from . import cache, compiler, rewrite
from .cache import BuildError
from .compiler import Resources, missing

HERE = Path(__file__).resolve().parents[1]
HOST_HEADERS = HERE / "host"
_building = threading.Lock()


def library(source: str | Path, target: str) -> Path:
    """Path of the shared library of a .cu for a target, built unless it is cached.

    Targets: "host", "checked" and "counted" (for the CPU, with each access of a kernel checked, or also counted), an
    architecture such as "sm_90a".
    """
    text = prepared(source, target)
    arguments: dict[str, Any]
    if compiler.on_host(target):
        flags = compiler.host_flags(target)
        try:
            text = rewrite.to_host(text, target != compiler.HOST, target == compiler.COUNTED)
        except ValueError as error:
            raise BuildError(f"{path_of(source)}: {error}") from None
        headers = [f"{each.name}\n{each.read_text()}" for each in sorted(HOST_HEADERS.rglob("*.h"))]
        arguments = {"cpp_sources": text, "extra_cflags": flags, "extra_include_paths": [str(HOST_HEADERS)]}
    else:
        headers, flags = [], [*compiler.NVCC_FLAGS, compiler.arch_flag(target)]
        arguments = {"cpp_sources": "", "cuda_sources": text, "extra_cuda_cflags": flags}
    arguments["extra_ldflags"] = compiler.link_flags(text, target)
    key = key_of(source, target, [text, *headers, *flags, *arguments["extra_ldflags"]])
    with _building:
        return cache.entry(key, lambda folder: _build(folder, source, target, arguments)) / "library.so"


def _build(folder: Path, source: str | Path, target: str, arguments: dict[str, Any]) -> None:
    from torch.utils import cpp_extension  # the import takes half a second

    # ninja may be installed only beside this Python. The key covers the dependencies, so nvcc need not list them.
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
            **arguments,
        )
    except (RuntimeError, OSError) as error:
        name, message = compiler.compiler_for(target), compiler.useful(str(error))
        raise BuildError(f"{path_of(source)}: {name} failed for {target}:\n{message}") from None
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
    """Writes a script that runs `command`, and returns its path: torch expects a compiler's name to be one word."""
    script = folder / "g++"  # torch expects such a name
    script.write_text(f'#!/bin/sh\nexec {shlex.join(command)} "$@"\n')
    script.chmod(0o700)
    return str(script)


def requires(source: str | Path) -> str | None:
    """The architecture that a .cu requires (`// requires: sm_90a`); None if it runs on all, and on the CPU."""
    return rewrite.requirement(path_of(source).read_text())


def supports(source: str | Path, target: str) -> bool:
    """True if a .cu can be built for a target, according to its `// requires:` line."""
    required = requires(source)
    return required is None if compiler.on_host(target) else compiler.satisfies(target, required)


def compile_only(source: str | Path, arch: str) -> str:
    """Compiles the device code of a .cu for `arch`, without a GPU, and returns the report of `ptxas -v`."""
    text = prepared(source, arch)
    key = key_of(source, arch, ["cubin", text, *compiler.NVCC_FLAGS])
    return compiler.device_code(key, text, arch).joinpath("ptxas.txt").read_text()


def resources(source: str | Path, arch: str) -> list[Resources]:
    """Registers, stack and spills of all functions in a .cu, compiled for `arch`."""
    return compiler.parse_resources(compile_only(source, arch), arch)


def ptx(source: str | Path, arch: str) -> str:
    """The PTX of all kernels in a .cu, compiled for `arch`, without a GPU. A built library has none."""
    text = prepared(source, arch)
    key = key_of(source, arch, ["ptx", text, *compiler.NVCC_FLAGS])
    return compiler.device_code(key, text, arch, "ptx").joinpath("kernel.ptx").read_text()


def sass(source: str | Path, arch: str) -> str:
    """The machine code of all kernels in the library of a .cu."""
    return compiler.disassembled(library(source, arch))


def prepared(source: str | Path, target: str) -> str:
    """The text of a .cu with its local headers. Raises unless it can be built for the target."""
    path = path_of(source)
    if not supports(source, target):
        where = "the CPU" if compiler.on_host(target) else target
        raise NotImplementedError(f"{path.name} uses instructions of {requires(source)}, which {where} does not have")
    if problem := missing("cpu" if compiler.on_host(target) else "cuda"):
        raise BuildError(f"{path}: {problem}")
    return rewrite.expand(path, [HERE, HERE / "common"])


def key_of(source: str | Path, target: str, parts: list[str]) -> str:
    """The key of a cached result: name, target, and a hash of all that the result depends on."""
    compilers = [compiler.identity(each) for each in compiler.compilers(target)]
    given = [shlex.join(compiler.cxx_command()), os.environ.get("CC", "")]  # load_inline passes CC to nvcc
    everything = "\0".join([*parts, *compilers, *given, target, platform.machine(), platform.system()])
    everything = everything.replace(str(HERE), HERE.name)  # paths in #line directives: copies of the tree share results
    name = source.stem if isinstance(source, Path) else source
    name = re.sub(r"\W", "_", name, flags=re.ASCII)[:64]  # the name is part of a path and of a ninja file
    return f"{name}-{target}-{hashlib.sha256(everything.encode()).hexdigest()[:24]}"


def path_of(source: str | Path) -> Path:
    """The file of a source, given as a Path or as a path below cuda_ref/ without its suffix."""
    return source if isinstance(source, Path) else HERE / f"{source}.cu"
