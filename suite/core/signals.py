"""Ctrl-C and SIGTERM: a command ends within two seconds, whatever it is doing, and leaves no half-written file.

The first signal raises KeyboardInterrupt in the main thread, where everything is put away on the way out; a section
marked `uninterrupted` is finished first, and so is an import. Should that not come to an end, because some C code never
returns or an exception was lost in a destructor, a thread ends the process. Workers end with it (see `process.py`).
Further signals change nothing. Exit status: 128 + signal, so 130 for Ctrl-C and 143 for SIGTERM.
"""

from __future__ import annotations

import _thread
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
GRACE_S, IMPORT_GRACE_S = 1.3, 0.5
"""How long the way out may take, and how long an import may go on before."""


class _State:
    received: int | None = None
    raised = False
    sections = 0


@contextmanager
def stoppable() -> Iterator[None]:
    """The whole of a command. Leaves with the exit status of the signal, if there was one."""
    for each in SIGNALS:
        if signal.getsignal(each) != signal.SIG_IGN:  # nohup, or a shell's background job
            signal.signal(each, _stop)
    try:
        yield
    finally:
        for each in SIGNALS:
            signal.signal(each, signal.SIG_IGN)  # it is over, but for Python's own end
        if _State.received is not None:
            raise SystemExit(128 + _State.received) from None


@contextmanager
def uninterrupted() -> Iterator[None]:
    """A section that a signal does not break off. It has to be short."""
    _State.sections += 1
    try:
        yield
    finally:
        _State.sections -= 1
        if _State.received is not None and not _State.raised and not _State.sections:
            _raise()


def _stop(number: int, frame: FrameType | None) -> None:
    importing = _is_importing(frame)
    if _State.received is None:
        _State.received = number
        _thread.start_new_thread(_insist, (number, IMPORT_GRACE_S if importing else GRACE_S))
    if not (_State.raised or _State.sections or importing):
        _raise()


def _raise() -> None:
    _State.raised = True
    raise KeyboardInterrupt


def _is_importing(frame: FrameType | None) -> bool:
    """C++ code that a module runs when it is loaded may end the process if an exception comes by."""
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False


def _insist(number: int, grace_s: float) -> None:
    """Raise what could not be raised at once, and end the process when its time is over."""
    begin = time.monotonic()
    while time.monotonic() < begin + (GRACE_S if _State.raised else grace_s):
        time.sleep(0.02)
        if not _State.raised:
            _thread.interrupt_main(signal.Signals(number))
    if sys.stderr.isatty():
        os.write(2, b"\x1b[?25h\n")  # a progress bar hides the cursor
    os._exit(128 + number)
