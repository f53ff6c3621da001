"""Imports that a process makes before others are forked from it: torch takes a second, a fork milliseconds."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable

from suite import frameworks
from suite.hardware.device import Device


def preload(device: Device, import_others: Callable[[], object], *, times: bool = True) -> None:
    """Prepare the frameworks for `device`, import the modules that check and time, then run `import_others`.

    An import that fails is ignored here: the first request repeats it, and its reply carries the reason. Garbage
    collections skip all that is imported. times: the processes are likely to time calls, and share the memory that this
    takes on a CPU.
    """
    for name in frameworks.names():
        frameworks.get(name).prepare(device)
    gc.disable()  # torch's million objects stay alive: a collection would find nothing
    with contextlib.suppress(Exception):
        from suite.checking import check  # noqa: F401
        from suite.timing import target

        import_others()
        if times and device.type == "cpu":
            target.unrelated_memory()
    gc.enable()
    gc.freeze()
