"""Text from kernels, compilers and files, made safe to print and to store."""

from __future__ import annotations

from typing import Any


def one_line(text: Any) -> str:
    """`str(text)` on one line with printable characters only, so that no escape sequence reaches a terminal."""
    return " ".join("".join(c if c.isprintable() else " " for c in str(text)).split())


def joined_reasons(reason: str, more: str) -> str:
    """Join two reasons to one text, without repetition."""
    return reason if more in reason else "; ".join(filter(None, [reason, more]))


def error_line(error: BaseException) -> str:
    """Type and message of an error on one line. A message is cut off after 300 characters."""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
