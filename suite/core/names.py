"""Messages about names that do not exist, with the nearest names that do."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import SequenceMatcher

from suite.core.text import one_line

MOST = 3
"""The largest number of names that are suggested."""
SIMILAR = 0.6
"""The smallest similarity, between 0 and 1, of a name that is suggested."""
LISTED = 40
"""The largest number of valid names that a message lists."""


def nearest(given: str, valid: Iterable[str], similarity: float = SIMILAR) -> list[str]:
    """At most three of `valid` that are similar to `given`, the most similar first. Case and `*?[]` do not count."""
    wanted = given.strip().strip("*?[]").lower()
    scores = {name: _similarity(wanted, name.lower()) for name in valid}
    near = [name for name, score in scores.items() if score >= similarity]
    return sorted(near, key=lambda name: -scores[name])[:MOST]


def _similarity(wanted: str, name: str) -> float:
    """The similarity to a name, or to its last part: `gluon` is near `triton/gluon`."""
    return max(SequenceMatcher(None, wanted, text).ratio() for text in (name, name.rpartition("/")[2]))


def did_you_mean(given: object, valid: Iterable[str]) -> str:
    """`; did you mean matmul or matrix_add?`; empty if no name is similar."""
    near = nearest(str(given), valid)
    return f"; did you mean {_joined(near)}?" if near else ""


def unknown(given: object, valid: Iterable[object], *, also: Iterable[str] = (), see: str = "") -> str:
    """`unknown 'fp15'; valid are float32, float16; did you mean fp16?`

    also: further valid names, such as short ones, which are suggested but not listed. see: the place where many names
    are listed; the message itself then has the three nearest, however far they are.
    """
    names = list(map(str, valid))
    shown = repr(one_line(given))
    if len(names) > LISTED:
        return f"unknown {shown}; the nearest are {', '.join(nearest(str(given), names, 0.0))}" + (
            f"; {see} has all" if see else f", of {len(names)}"
        )
    listed = f"valid {'is' if len(names) == 1 else 'are'} {', '.join(names)}"
    return f"unknown {shown}; {listed}{did_you_mean(given, (*names, *also))}"


def _joined(names: list[str]) -> str:
    *first, last = names
    return f"{', '.join(first)} or {last}" if first else last
