"""A share of a list, so that several processes or machines divide a count."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class Shard:
    """One of `count` equal shares."""

    number: int
    count: int

    @classmethod
    def parse(cls, text: str) -> Shard:
        """Parse `2/4`."""
        number, count = map(int, text.split("/"))
        if not 1 <= number <= count:
            raise ValueError(text)
        return cls(number, count)

    def of(self, items: Sequence[T]) -> Sequence[T]:
        return items[self.number - 1 :: self.count]


WHOLE = Shard(1, 1)
