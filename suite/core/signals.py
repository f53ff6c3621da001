"""Ctrl-C, SIGTERM and SIGHUP: a command ends within two seconds and leaves no half-written file.

The first signal raises KeyboardInterrupt in the main thread, so that `finally` and `with` clean up. Inside an
`uninterruptible` section, and during an import, the exception waits until the section or the import is over. If the
main thread does not end in time (C code that never returns), a second thread ends the process; the worker processes end
with it. An exception that is lost in a destructor is raised again. Functions given to `register_cleanup` run in each
case. Later signals have no effect. The exit status is 128 + signal: 130 for Ctrl-C, 143 for SIGTERM.
"""

from __future__ import annotations

import _thread
import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, ClassVar

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
GRACE_S = 1.3
"""Seconds for the clean-up after KeyboardInterrupt."""
IMPORT_GRACE_S = 0.5
"""Seconds for an import in progress to finish before KeyboardInterrupt."""


class _State:
    received: int | None = None
    raised = False
    sections = 0
    cleanups: ClassVar[list[Callable[[], object]]] = []


@contextmanager
def interruptible_command() -> Iterator[None]:
    """Handle the signals for a whole command. Raises `SystemExit(128 + signal)` at the end if one came."""
    for each in SIGNALS:
        if signal.getsignal(each) != signal.SIG_IGN:  # nohup and background jobs ignore some
            signal.signal(each, _on_signal)
    sys.unraisablehook = _on_unraisable
    try:
        yield
    finally:
        for each in SIGNALS:
            signal.signal(each, signal.SIG_IGN)  # the interpreter's own shutdown is not interrupted
        if _State.received is not None:
            _clean_up()
            raise SystemExit(128 + _State.received) from None


@contextmanager
def uninterruptible() -> Iterator[None]:
    """A section that a signal does not interrupt: KeyboardInterrupt is raised after it. Keep it short."""
    _State.sections += 1
    try:
        yield
    finally:
        _State.sections -= 1
        if _State.received is not None and not _State.raised and not _State.sections:
            _interrupt()


def register_cleanup(act: Callable[[], object]) -> Callable[[], None]:
    """Register `act` to run if a signal ends the command before other clean-up can. It must be short.

    Returns a function that withdraws it.
    """
    _State.cleanups.append(act)

    def withdraw() -> None:
        with contextlib.suppress(ValueError):
            _State.cleanups.remove(act)

    return withdraw


def _clean_up() -> None:
    while _State.cleanups:
        with contextlib.suppress(Exception):
            _State.cleanups.pop()()


def _on_unraisable(unraisable: Any) -> None:
    """Let `_end_after` raise a KeyboardInterrupt again that was lost in a destructor or a callback."""
    if _State.received is not None and issubclass(unraisable.exc_type, KeyboardInterrupt):
        _State.raised = False
    else:
        sys.__unraisablehook__(unraisable)


def _on_signal(number: int, frame: FrameType | None) -> None:
    importing = _is_importing(frame)
    if _State.received is None:
        _State.received = number
        _thread.start_new_thread(_end_after, (number, IMPORT_GRACE_S if importing else GRACE_S))
    if not (_State.raised or _State.sections or importing):
        _interrupt()


def _interrupt() -> None:
    _State.raised = True
    raise KeyboardInterrupt


def _is_importing(frame: FrameType | None) -> bool:
    """True if `frame` runs inside an import, where an exception can abort a module's C++ initialization."""
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False


def _end_after(number: int, grace_s: float) -> None:
    """Retry the interrupt until it is raised; end the process when the grace period is over."""
    begin = time.monotonic()
    while time.monotonic() < begin + (GRACE_S if _State.raised else grace_s):
        time.sleep(0.02)
        if not _State.raised:
            _thread.interrupt_main(signal.Signals(number))
    _clean_up()
    if sys.stderr.isatty():
        os.write(2, b"\x1b[?25h\n")  # shows the cursor, which a progress bar hides
    os._exit(128 + number)
