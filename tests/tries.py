"""Shared by tests of times on machines that other work disturbs: several tries, of which one has to pass."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

Given = TypeVar("Given")


def passes_once(check: Callable[[Given], None], givens: Iterable[Given]) -> None:
    """Run `check` on one value after the other until it passes; the failure of the last is the test's.

    A busy machine makes single times longer. The best of several tries, or the longest of several limits, shows what
    the code itself does.
    """
    *first, last = givens
    for given in first:
        try:
            return check(given)
        except AssertionError:
            continue
    return check(last)
