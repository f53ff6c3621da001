"""Replacements of functions of `os`, and of `sys.stdout`, that report their use to the active listener.

They stay installed, since a file may keep a reference to them.
"""

from __future__ import annotations

import io
import os
import sys
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any, Protocol

real_chdir = os.chdir


class Listener(Protocol):
    """Is called with the caller's frame for each use while it is active."""

    path: Path

    def line(self, frame: FrameType | None) -> int | None:
        """The line of the file `path` that led to `frame`."""

    def printed(self, frame: FrameType | None) -> None:
        """Something was written to `sys.stdout`."""

    def changed_folder(self, frame: FrameType | None) -> None:
        """The working directory was changed."""

    def changes_variable(self, variable: str, frame: FrameType | None) -> None:
        """A variable of the environment is about to change."""


_active: Listener | None = None


def activate(listener: Listener | None) -> Listener | None:
    """Make `listener` the active one, and return the previous one."""
    global _active
    before, _active = _active, listener
    return before


def to_log(data: bytes) -> None:
    """Write to the worker's log, which is its stderr."""
    while data:
        data = data[os.write(2, data) :]


class _Stdout(io.RawIOBase):
    """`sys.stdout` for a user's file: reports each write, and passes the text on to the log."""

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return 1

    def write(self, data: Any) -> int:
        if _active is not None and len(data) > 0:
            _active.printed(sys._getframe(1))
        to_log(bytes(data))
        return len(data)


STDOUT = io.TextIOWrapper(_Stdout(), encoding="utf-8", errors="backslashreplace", write_through=True)  # type: ignore[type-var]


@cache
def install() -> None:
    """Replace `os.chdir`, `os.fchdir`, `os.putenv`, `os.unsetenv` (which `os.environ` uses) and `os._exit`."""
    real_fchdir, real_putenv, real_unsetenv, real_exit = os.fchdir, os.putenv, os.unsetenv, os._exit

    def chdir(path: Any) -> None:
        real_chdir(path)
        if _active is not None:
            _active.changed_folder(sys._getframe(1))

    def fchdir(fd: Any) -> None:
        real_fchdir(fd)
        if _active is not None:
            _active.changed_folder(sys._getframe(1))

    def putenv(name: Any, value: Any, /) -> None:
        if _active is not None:
            _active.changes_variable(os.fsdecode(name), sys._getframe(1))
        real_putenv(name, value)

    def unsetenv(name: Any, /) -> None:
        if _active is not None:
            _active.changes_variable(os.fsdecode(name), sys._getframe(1))
        real_unsetenv(name)

    def _exit(status: int) -> None:
        if _active is not None:
            line = _active.line(sys._getframe(1))
            to_log(f"os._exit({status}) was called ({_active.path.name}{f':{line}' if line else ''})\n".encode())
        real_exit(status)

    os.chdir, os.fchdir, os.putenv, os.unsetenv = chdir, fchdir, putenv, unsetenv
    os._exit = _exit  # type: ignore[assignment]
