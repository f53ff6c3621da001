"""Opens standard streams that are closed: a process may be started without some of them."""

from __future__ import annotations

import os
import sys


def open_standard_streams() -> None:
    """Open /dev/null in place of each closed standard stream.

    Otherwise the next file or pipe gets descriptor 0, 1 or 2, and prints go to it by mistake. Call this before any file
    is opened.
    """
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest free number, which is `descriptor`
            os.set_inheritable(descriptor, True)
    for descriptor, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            mode = "w" if descriptor else "r"
            setattr(sys, name, open(descriptor, mode, encoding="utf-8", closefd=False))  # noqa: SIM115 (stays open)
