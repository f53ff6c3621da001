"""Finds the line of a file that changes a setting, by comparing the settings after each line."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any

from suite.external.settings import Setting

TRACED_LINES = 20_000
"""Traced lines, at about 50 us each, after which settings are compared only once more at the end."""


class LineTracer:
    """A trace function for `sys.settrace`: compares the settings before each line of one file.

    A change that is found was made by the previous line. `on_line` is called with that line before each comparison.
    """

    def __init__(
        self, filename: str, settings: Sequence[Setting], states: Sequence[Any], on_line: Callable[[int], None]
    ) -> None:
        self.filename = filename
        self.settings = settings
        self.states = list(states)
        self.on_line = on_line
        self.line: int | None = None
        self.left = TRACED_LINES
        self.changed_by: dict[str, int] = {}

    def __call__(self, frame: FrameType, event: str, argument: Any) -> LineTracer | None:
        if frame.f_code.co_filename != self.filename or self.left <= 0:
            return None
        self.left -= 1
        self.compare()
        self.line = frame.f_lineno
        return self

    def compare(self) -> None:
        """Record the settings that the last line has changed."""
        if self.line is None:
            return
        self.on_line(self.line)
        for position, setting in enumerate(self.settings):
            state = setting.get()
            if state != self.states[position]:
                self.states[position] = state
                self.changed_by.setdefault(setting.what, self.line)
