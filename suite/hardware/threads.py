"""Sets the number of threads of native implementations on a CPU: the same for every command that times them."""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import cache
from pathlib import Path

from suite.hardware import host

XLA_VARIABLE = "PJRT_NPROC"
"""Read by XLA when it is first used in a process."""
THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", XLA_VARIABLE)
"""Environment variables of the number of threads, read by torch, the BLAS libraries of torch and NumPy, and XLA."""
OPENBLAS = tuple(f"{prefix}openblas_{{}}_num_threads{suffix}" for prefix in ("scipy_", "") for suffix in ("64_", ""))
"""Names of OpenBLAS's functions in NumPy's wheels, then in other builds; `{}` is `get` or `set`."""


def native_threads() -> int:
    """Number of threads of a native implementation on the CPU: OMP_NUM_THREADS, or one less than the cores.

    With a thread for each core, any other process displaces one of them, and all others wait for it. This costs 4 to
    8 ms, a time slice of the scheduler, in each call.
    """
    given = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
    return int(given) if given.isdecimal() and int(given) else max(1, host.cores() - 1)


def thread_settings() -> dict[str, str]:
    """The variables of THREAD_VARIABLES that are not set, each with the value `native_threads`: for a new process."""
    return {name: str(native_threads()) for name in THREAD_VARIABLES if not os.environ.get(name)}


@contextmanager
def native_threads_set() -> Iterator[int]:
    """Give torch and NumPy `native_threads` threads in this process, and yield that number. Restores theirs at the end.

    XLA cannot change its number once it is in use: the adapter of JAX sets it before (`XLA_VARIABLE`).
    """
    count = native_threads()
    with _set_to(count, _thread_counts()):
        yield count


def blas_threads_set(count: int) -> AbstractContextManager[None]:
    """Give NumPy's products `count` threads in this process. Restores their number at the end."""
    return _set_to(count, _openblas())


Count = tuple[Callable[[], int], Callable[[int], object]]
"""Functions that read and set a library's number of threads."""


@contextmanager
def _set_to(count: int, libraries: Iterable[Count]) -> Iterator[None]:
    with ExitStack() as restored:
        for get, set_to in libraries:
            before = get()
            if before != count:
                restored.callback(set_to, before)
                set_to(count)
        yield


def _thread_counts() -> Iterator[Count]:
    """Functions that read and set the thread counts of torch and OpenBLAS, if this process has loaded them."""
    if (torch := sys.modules.get("torch")) is not None:
        yield torch.get_num_threads, torch.set_num_threads
    if "numpy" in sys.modules:
        yield from _openblas()


@cache
def _openblas(maps: Path = Path("/proc/self/maps")) -> tuple[Count, ...]:
    """The same for each OpenBLAS library in this process; none where the system does not list them."""
    try:
        paths = {line.split(maxsplit=5)[-1].strip() for line in maps.read_text().splitlines() if "openblas" in line}
    except OSError:
        return ()
    found = []
    for path in sorted(paths):
        with contextlib.suppress(OSError):
            library = ctypes.CDLL(path)
            name = next((each for each in OPENBLAS if hasattr(library, each.format("set"))), None)
            if name is not None:
                found.append((getattr(library, name.format("get")), getattr(library, name.format("set"))))
    return tuple(found)
