"""Detects and prevents the flushing of subnormal numbers to zero, a processor mode that each thread has for itself."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import torch

GRAIN = 1 << 15
"""Elements for each thread above which torch uses all its threads."""


def thread_flushes() -> bool:
    """True if this thread treats subnormal numbers as zero."""
    smallest_normal = sys.float_info.min
    return smallest_normal * 0.5 == 0.0


def pool_flushes() -> bool:
    """True if one of torch's threads does. A new thread starts in the mode of the thread that creates it."""
    smallest_normal = torch.full((GRAIN * torch.get_num_threads(),), sys.float_info.min, dtype=torch.float64)
    return bool((smallest_normal.mul_(0.5) == 0.0).any())


@contextmanager
def preserved(device: torch.device) -> Iterator[None]:
    """Keep subnormal numbers on `device` in a section of code, whatever other code has set.

    If a thread of torch's pool flushes them, which cannot be changed from outside, this thread computes alone.
    """
    flushes, threads = thread_flushes(), torch.get_num_threads()
    if flushes:
        torch.set_flush_denormal(False)
    alone = device.type == "cpu" and threads > 1 and pool_flushes()
    if alone:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        if alone:
            torch.set_num_threads(threads)
        if flushes:
            torch.set_flush_denormal(True)
