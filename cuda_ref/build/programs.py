"""Whole CUDA programs, built to run on the CPU with each access of a kernel checked."""

import subprocess
from pathlib import Path

from . import cache, compiler, rewrite
from .cache import BuildError
from .libraries import HERE, HOST_HEADERS, key_of


def program(source: Path, count: bool = False) -> Path:
    """Path of the program of a .cu that has a `main`, for the CPU, built unless it is cached.

    Accesses of kernels are checked if the C++ compiler is GCC. With `count` the program also counts what its kernels
    do, and writes the counts to the file that `$CUDA_HOST_COUNTS` names. Raises `BuildError` if it cannot be built.
    """
    if compiler.cxx() is None:
        raise BuildError(f"{source}: {compiler.missing('cpu')}")
    if count and not compiler.can_check():
        raise BuildError(f"{source}: only GCC can build a program that counts; set CXX=g++")
    target = compiler.COUNTED if count else compiler.CHECKED if compiler.can_check() else compiler.HOST
    flags = [*compiler.host_flags(target), "-include", "cuda_runtime.h"]  # nvcc includes it without being told
    flags += ["-DCUDA_HOST_PROGRAM"] if target != compiler.HOST else []
    try:
        text = rewrite.to_host(rewrite.expand(source, [HERE / "common"]), target != compiler.HOST, count)
    except ValueError as error:
        raise BuildError(f"{source}: {error}") from None
    headers = [f"{each.name}\n{each.read_text()}" for each in sorted(HOST_HEADERS.rglob("*.h"))]

    def make(folder: Path) -> None:
        (folder / "program.cpp").write_text(text)
        run = [*compiler.cxx_command(), *flags, f"-I{HOST_HEADERS}"]
        _call([*run, "-c", "program.cpp"], folder, source)
        _call([*compiler.cxx_command(), "program.o", "-o", "program"], folder, source)

    return cache.entry(key_of(source, target, ["program", text, *headers, *flags]), make) / "program"


def _call(command: list[str], folder: Path, source: Path) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise BuildError(f"{source}: the C++ compiler failed:\n{compiler.useful(done.stderr)}")
