"""File descriptor 1 while a user's file runs: finds prints of C code and of child processes."""

from __future__ import annotations

import ctypes
import os
import sys
from functools import cache

from suite.external import hooks


class Stdout:
    """Redirects file descriptor 1 to a file in memory, and `sys.stdout` to the reporting stream, until `restore`."""

    def __init__(self) -> None:
        self._streams = sys.stdin, sys.stdout, sys.stderr
        self._seen = 0
        self._fd = os.dup(1)
        os.dup2(_memory(), 1)
        sys.stdout = hooks.STDOUT

    def has_grown(self) -> bool:
        """True if C code or a child process has printed since the last call."""
        if sys.__stdout__ is not None and not sys.__stdout__.closed:
            sys.__stdout__.flush()
        _libc().fflush(None)
        before, self._seen = self._seen, max(self._seen, os.fstat(_memory()).st_size)
        return self._seen > before

    def restore_streams(self) -> None:
        """Restore Python's streams, which the code may have replaced."""
        sys.stdin, sys.stdout, sys.stderr = self._streams

    def restore(self) -> None:
        """Restore the file descriptor, and write to the log what C code and child processes have printed."""
        os.dup2(self._fd, 1)
        os.close(self._fd)
        if self._seen:
            hooks.to_log(os.pread(_memory(), self._seen, 0))
            os.ftruncate(_memory(), 0)
            os.lseek(_memory(), 0, os.SEEK_SET)


@cache
def _memory() -> int:
    return os.memfd_create("stdout")


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None)
