"""Imports that a process makes before others are forked from it: torch takes a second, a fork milliseconds."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable

from suite import frameworks
from suite.hardware.device import Device


def preload(device: Device, import_others: Callable[[], object]) -> None:
    """Prepare the frameworks for `device`, import the modules that check and time, then run `import_others`.

    An import that fails is ignored here: the first request repeats it, and its reply carries the reason. Garbage
    collections skip all that is imported.
    """
    for name in frameworks.names():
        frameworks.get(name).prepare(device)
    gc.disable()  # torch's million objects stay alive: a collection would find nothing
    with contextlib.suppress(Exception):
        from suite.checking import check  # noqa: F401
        from suite.timing import target  # noqa: F401

        import_others()
    gc.enable()
    gc.freeze()


def share_eviction_memory(device: Device) -> None:
    """Allocate the memory that evicts a CPU's cache, for all processes that are forked from now on to time calls."""
    from suite.timing import target

    if device.type == "cpu":
        target.unrelated_memory()
