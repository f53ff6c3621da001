"""What a file from outside does to the process that runs it: noticed with its line, and undone.

    remarks = Remarks(path)
    with Watch(remarks):
        ...                 # its code runs
    remarks.texts()         # ["printed to stdout (mine.py:7)", "changed the working directory, undone (mine.py:9)"]

Printing, `os.chdir`, `os.putenv` (which `os.environ` goes through) and `os._exit` are caught in the act, and the stack
says which line of the file it was. Random states and the frameworks' settings are compared before and after; a `traced`
watch also compares them after each line of the file.
"""

from __future__ import annotations

import ctypes
import io
import os
import random
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

TRACED_LINES = 20_000
"""A traced watch looks after so many lines of the file, and then only at the end: some 50 us each."""
OWN_BUSINESS = ("torch", "triton", "jax", "numpy")
"""Packages, by how their modules' names begin, that set environment variables for themselves: left alone, not told."""
JAX_SETTINGS = ("jax_enable_x64", "jax_default_matmul_precision", "jax_disable_jit", "jax_debug_nans")


class Remarks:
    """Sentences about a file, each with the lines that gave rise to it; with `line` where they are not known."""

    def __init__(self, path: Path, line: int | None = None) -> None:
        self.path = path
        self.line = line
        self._lines: dict[str, dict[int, None]] = {}

    def add(self, what: str, line: int | None) -> None:
        lines = self._lines.setdefault(what, {})
        if line is not None:
            lines[line] = None

    def texts(self) -> list[str]:
        return [f"{what} ({self._places(list(lines))})" for what, lines in self._lines.items()]

    def _places(self, lines: list[int]) -> str:
        if not lines and self.line is not None:
            lines = [self.line]
        shown = [f"{self.path.name}:{line}" for line in lines[:3]] or [self.path.name]
        return ", ".join(shown) + (", ..." if len(lines) > 3 else "")


class Watch:
    """While entered: what the code of a file prints and changes is added to its `remarks`. On leaving: undone.

    `own` holds the file's random states from one watch to the next: who draws random numbers draws others each time.
    Afterwards `changed` says whether there was anything to undo, and `unplaced` whether some line was not found out.
    """

    def __init__(self, remarks: Remarks, *, traced: bool = False, own: dict[str, Any] | None = None) -> None:
        self.path = remarks.path
        self.remarks = remarks
        self.changed = self.unplaced = False
        self._traced = traced
        self._own = {} if own is None else own
        self._touched: dict[str, int | None] = {}
        self._chdir_line: int | None = None

    def __enter__(self) -> Watch:
        global _active
        _install()
        self._outer, _active = _active, self
        self._environ, self._environment = os.environ, os.environ.copy()
        self._folder = _working_directory()
        self._streams = sys.stdin, sys.stdout, sys.stderr
        self._probes = _probes()
        self._states = [probe.get() for probe in self._probes]
        resumed = {} if self._traced else self._own  # seeding anew what it had seeded before would not show
        self._entry = [resumed.get(p.what, s) for p, s in zip(self._probes, self._states, strict=True)]
        self._put(self._entry)
        self._tracer = _Tracer(self, self._probes, self._entry)
        self._heard = 0
        self._fd1 = os.dup(1)
        os.dup2(_catcher(), 1)
        sys.stdout = _ear
        if self._traced:
            self._previous_trace = sys.gettrace()
            sys.settrace(self._tracer)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        global _active
        if self._traced:
            sys.settrace(self._previous_trace)
        _active = self._outer
        sys.stdin, sys.stdout, sys.stderr = self._streams
        self._restore_stdout()
        self._restore_folder()
        self._restore_environment()
        self._restore_states()

    def line(self, frame: FrameType | None) -> int | None:
        """The line of the file that is running: of its frames around `frame` the innermost."""
        while frame is not None:
            if frame.f_code.co_filename == str(self.path):
                return frame.f_lineno
            frame = frame.f_back
        return None

    def printed(self, frame: FrameType | None) -> None:
        self.remarks.add("printed to stdout", self.line(frame))

    def listen(self, line: int | None) -> None:
        """What has gone to file descriptor 1 past Python, from C or from a child process, was printed by `line`."""
        if sys.__stdout__ is not None and not sys.__stdout__.closed:
            sys.__stdout__.flush()
        _libc.fflush(None)
        size = os.fstat(_catcher()).st_size
        if size > self._heard:
            self._heard = size
            self.unplaced |= line is None
            self.remarks.add("printed to stdout", line)

    def left(self, frame: FrameType | None) -> None:
        self._chdir_line = self.line(frame)

    def touched(self, variable: str, frame: FrameType | None) -> None:
        """A variable is about to change, by the code of `frame`: the file's or that of a library which it calls."""
        while frame is not None and frame.f_globals.get("__name__") in ("os", "_collections_abc", "contextlib"):
            frame = frame.f_back
        if frame is not None and str(frame.f_globals.get("__name__", "")).startswith(OWN_BUSINESS):
            self._touched.pop(variable, None)
            return
        self._touched[variable] = self.line(frame)

    def _restore_stdout(self) -> None:
        """What was printed past Python is passed on to the log."""
        self.listen(self._tracer.line)
        os.dup2(self._fd1, 1)
        os.close(self._fd1)
        if self._heard:
            _to_log(os.pread(_catcher(), self._heard, 0))
            os.ftruncate(_catcher(), 0)
            os.lseek(_catcher(), 0, os.SEEK_SET)

    def _restore_folder(self) -> None:
        if self._folder is not None and _working_directory() != self._folder:
            _real_chdir(self._folder)
            self._undid("the working directory", self._chdir_line)

    def _restore_environment(self) -> None:
        if os.environ is not self._environ:
            os.environ = self._environ  # noqa: B003 (it is the very object)
            self._undid("os.environ", None)
        for variable, line in self._touched.items():
            before = self._environment.get(variable)
            if os.environ.get(variable) != before:
                self._undid(f"the environment variable {variable}", line)
            if before is None:
                os.environ[variable] = ""  # so that there is something to delete, also after a bare os.putenv
                del os.environ[variable]
            else:
                os.environ[variable] = before

    def _restore_states(self) -> None:
        self._tracer.look()
        for probe, before, state in zip(self._probes, self._entry, self._states, strict=True):
            after = probe.get()
            if after != before:
                self._undid(probe.what, self._tracer.blamed.get(probe.what))
                if probe.random:
                    self._own[probe.what] = after
            self.changed |= after != state
        for _ in range(2):  # putting one of torch's settings back may change another
            self._put(self._states)

    def _put(self, states: list[Any]) -> None:
        for probe, state in zip(self._probes, states, strict=True):
            if probe.get() != state:
                probe.put(state)

    def _undid(self, what: str, line: int | None) -> None:
        self.changed = True
        self.unplaced |= line is None
        self.remarks.add(f"changed {what}, undone", line)


@dataclass(frozen=True)
class _Probe:
    """Something global that code can change: how to read it, as a value to compare, and how to put it back."""

    what: str
    get: Callable[[], Any]
    put: Callable[[Any], object]
    random: bool = False


def _probes() -> list[_Probe]:
    """Of what is imported; nothing is imported for it."""
    found = [_Probe("the random state of random", random.getstate, random.setstate, random=True)]
    for module, more in (("numpy", _numpy_probes), ("torch", _torch_probes), ("jax", _jax_probes)):
        if module in sys.modules:
            found += more()
    return found


def _numpy_probes() -> list[_Probe]:
    import numpy as np

    def get() -> tuple[Any, ...]:
        state: Any = np.random.get_state(legacy=True)
        name, key, *rest = state
        return (name, key.tobytes(), *rest)

    def put(state: tuple[Any, ...]) -> None:
        name, key, *rest = state
        np.random.set_state((name, np.frombuffer(key, np.uint32), *rest))

    return [
        _Probe("the random state of numpy", get, put, random=True),
        _Probe("numpy's error handling", np.geterr, lambda before: np.seterr(**before)),
    ]


def _torch_probes() -> list[_Probe]:
    import torch

    def random_probe(where: str, get: Callable[[], torch.Tensor], put: Callable[[torch.Tensor], object]) -> _Probe:
        return _Probe(
            f"the random state of torch{where}",
            lambda: get().numpy().tobytes(),
            lambda before: put(torch.frombuffer(bytearray(before), dtype=torch.uint8)),
            random=True,
        )

    def put_device(before: torch.device) -> None:
        torch.set_default_device(None if before.type == "cpu" else before)

    found = [
        _Probe("torch's default device", torch.get_default_device, put_device),
        _Probe("torch's default dtype", torch.get_default_dtype, torch.set_default_dtype),
        _Probe("torch's number of threads", torch.get_num_threads, torch.set_num_threads),
        _Probe("whether torch records gradients", torch.is_grad_enabled, torch.set_grad_enabled),
        _Probe(
            "whether torch's algorithms are deterministic",
            torch.are_deterministic_algorithms_enabled,
            torch.use_deterministic_algorithms,
        ),
        random_probe("", torch.get_rng_state, torch.set_rng_state),
        _Probe(
            "torch's float32 matmul precision",
            torch.get_float32_matmul_precision,
            torch.set_float32_matmul_precision,
        ),
    ]
    for where, flags in (("a GPU", torch.backends.cuda.matmul), ("a CPU", torch.backends.mkldnn.matmul)):
        if hasattr(flags, "fp32_precision"):
            found.append(
                _Probe(
                    f"torch's float32 matmul precision on {where}",
                    lambda flags=flags: flags.fp32_precision,  # type: ignore[misc]
                    lambda before, flags=flags: setattr(flags, "fp32_precision", before),  # type: ignore[misc]
                )
            )
    if torch.cuda.is_initialized():
        found.append(random_probe(" on the GPU", torch.cuda.get_rng_state, torch.cuda.set_rng_state))
    return found


def _jax_probes() -> list[_Probe]:
    import jax

    return [
        _Probe(
            f"jax's setting {name}",
            lambda name=name: getattr(jax.config, name),  # type: ignore[misc]
            lambda before, name=name: jax.config.update(name, before),  # type: ignore[misc]
        )
        for name in JAX_SETTINGS
    ]


class _Tracer:
    """A trace function that compares the probes before each line of one file; what changed was the line before."""

    def __init__(self, watch: Watch, probes: list[_Probe], states: list[Any]) -> None:
        self.watch = watch
        self.filename = str(watch.path)
        self.probes = probes
        self.states = list(states)
        self.line: int | None = None
        self.left = TRACED_LINES
        self.blamed: dict[str, int] = {}

    def __call__(self, frame: FrameType, event: str, argument: Any) -> _Tracer | None:
        if frame.f_code.co_filename != self.filename or self.left <= 0:
            return None
        self.left -= 1
        self.look()
        self.line = frame.f_lineno
        return self

    def look(self) -> None:
        if self.line is None:
            return
        self.watch.listen(self.line)
        for position, probe in enumerate(self.probes):
            state = probe.get()
            if state != self.states[position]:
                self.states[position] = state
                self.blamed.setdefault(probe.what, self.line)


class _Ear(io.RawIOBase):
    """`sys.stdout` under a watch: says who prints, and passes it on to the log."""

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return 1

    def write(self, data: Any) -> int:
        if _active is not None and len(data) > 0:
            _active.printed(sys._getframe(1))
        _to_log(bytes(data))
        return len(data)


_active: Watch | None = None
_ear = io.TextIOWrapper(_Ear(), encoding="utf-8", errors="backslashreplace", write_through=True)  # type: ignore[type-var]
_libc = ctypes.CDLL(None)
_real_chdir = os.chdir
_installed = False
_catcher_fd: int | None = None


def _install() -> None:
    """Put ears on four functions of `os`, for good: a file may keep what it finds there. They do what they did."""
    global _installed
    if _installed:
        return
    _installed = True
    real_fchdir, real_putenv, real_unsetenv, real_exit = os.fchdir, os.putenv, os.unsetenv, os._exit

    def chdir(path: Any) -> None:
        _real_chdir(path)
        if _active is not None:
            _active.left(sys._getframe(1))

    def fchdir(fd: Any) -> None:
        real_fchdir(fd)
        if _active is not None:
            _active.left(sys._getframe(1))

    def putenv(name: Any, value: Any, /) -> None:
        if _active is not None:
            _active.touched(os.fsdecode(name), sys._getframe(1))
        real_putenv(name, value)

    def unsetenv(name: Any, /) -> None:
        if _active is not None:
            _active.touched(os.fsdecode(name), sys._getframe(1))
        real_unsetenv(name)

    def _exit(status: int) -> None:
        if _active is not None:
            line = _active.line(sys._getframe(1))
            _to_log(f"os._exit({status}) was called ({_active.path.name}{f':{line}' if line else ''})\n".encode())
        real_exit(status)

    os.chdir, os.fchdir, os.putenv, os.unsetenv = chdir, fchdir, putenv, unsetenv
    os._exit = _exit  # type: ignore[assignment]


def _catcher() -> int:
    """A file in memory that is file descriptor 1 under a watch."""
    global _catcher_fd
    if _catcher_fd is None:
        _catcher_fd = os.memfd_create("stdout")
    return _catcher_fd


def _to_log(data: bytes) -> None:
    while data:
        data = data[os.write(2, data) :]


def _working_directory() -> str | None:
    try:
        return os.getcwd()
    except OSError:  # it was deleted
        return None
