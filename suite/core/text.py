"""Text from elsewhere: what a kernel, a compiler or a file says, before it is shown or kept."""

from __future__ import annotations

from typing import Any


def one_line(text: Any) -> str:
    """Printable characters on one line: what is shown cannot steer a terminal, and one row stays one line."""
    return " ".join("".join(c if c.isprintable() else " " for c in str(text)).split())
