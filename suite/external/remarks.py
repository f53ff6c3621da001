"""The remarks of a row about side effects of a user's file: `printed to stdout (mine.py:7)`."""

from __future__ import annotations

from pathlib import Path


class Remarks:
    """Sentences about the file `path`, each with the lines that caused it, or with `line` if these are unknown."""

    def __init__(self, path: Path, line: int | None = None) -> None:
        self.path = path
        self.line = line
        self._lines: dict[str, dict[int, None]] = {}

    def add(self, what: str, line: int | None) -> None:
        """Add a sentence, or one more line to an existing sentence."""
        lines = self._lines.setdefault(what, {})
        if line is not None:
            lines[line] = None

    def texts(self) -> list[str]:
        """The sentences in the order of their first occurrence."""
        return [f"{what} ({self._places(list(lines))})" for what, lines in self._lines.items()]

    def _places(self, lines: list[int]) -> str:
        if not lines and self.line is not None:
            lines = [self.line]
        shown = [f"{self.path.name}:{line}" for line in lines[:3]] or [self.path.name]
        return ", ".join(shown) + (", ..." if len(lines) > 3 else "")
