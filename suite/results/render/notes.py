"""The numbered texts under a table."""

from __future__ import annotations

from suite.results.render.layout import wrapped


class Notes:
    """The numbered texts under a table, without repetition."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def number(self, text: str) -> int:
        return self._numbers.setdefault(text, len(self._numbers) + 1)

    def numbers(self, texts: list[str]) -> str:
        """The numbers of the notes of a row: `1,3`."""
        return ",".join(str(self.number(text)) for text in texts)

    def lines(self, width: int) -> list[str]:
        """The texts with their numbers, on lines at most `width` wide."""
        numbered = [f"{place:>2}  {text}" for text, place in self._numbers.items()]
        return [line for text in numbered for line in wrapped(text, width, indent="    ")]
