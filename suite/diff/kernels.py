"""Tells whether the two runs of a row ran the same kernels.

A vendor's library or compiler chooses its kernels when it first meets a shape, some by timing them: XLA does for
products, and keeps the choices in its compilation cache. With an empty cache it may choose others.
"""

from __future__ import annotations

from suite.core.text import one_line
from suite.diff.change import Pair

MAX_LENGTH = 160
"""Longest list of kernels in a note."""


def other_kernels(pair: Pair) -> str:
    """A note on the kernels of both runs if they differ; empty if they are the same, or unknown in one of the two."""
    base, new = pair.base, pair.new
    if not (base.kernels_run and new.kernels_run):
        return ""
    if base.kernels_run != new.kernels_run:
        return f"other kernels ran: {_short(base.kernels_run)} -> {_short(new.kernels_run)}"
    if base.kernel_details and new.kernel_details and base.kernel_details != new.kernel_details:
        return "kernels of the same names ran with another grid, block, registers or shared memory"
    return ""


def is_vendors_choice(pair: Pair) -> bool:
    """True for a vendor's row with the same versions in both runs: no code of the suite or of a user has changed it."""
    return bool(pair.base.vendor) and pair.base.vendor == pair.new.vendor and pair.base.versions == pair.new.versions


def _short(kernels: str) -> str:
    text = one_line(kernels)
    return text if len(text) <= MAX_LENGTH else f"{text[: MAX_LENGTH - 3]}..."
