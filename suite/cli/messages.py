"""Prints messages for people on stderr, one line each."""

from __future__ import annotations

import sys
from contextlib import suppress


def say(message: str) -> None:
    """Print one line on stderr. A closed stderr is no error."""
    with suppress(OSError):
        print(message, file=sys.stderr, flush=True)
