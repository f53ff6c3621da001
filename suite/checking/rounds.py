"""Chooses the timed rounds whose results are judged: at random, each as likely as any other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import SystemRandom

import torch

Tensors = tuple[torch.Tensor, ...]


@dataclass(eq=False)
class Round:
    """A round that may be judged: its inputs, copies of its results by name, and the previous inputs if small."""

    number: int
    inputs: Tensors
    before: Tensors | None
    results: dict[str, Tensors] = field(default_factory=dict)


class Reservoir:
    """A random choice of `size` of the rounds offered so far, all equally likely."""

    def __init__(self, size: int, random: SystemRandom) -> None:
        self.rounds: list[Round] = []
        self._size, self._random, self._offered = size, random, 0

    def offer(self, make: Callable[[], Round]) -> Round | None:
        """Return a new round of `make` if it is chosen, perhaps in place of an earlier one; None if it is rejected."""
        self._offered += 1
        if len(self.rounds) < self._size:
            self.rounds.append(make())
            return self.rounds[-1]
        place = self._random.randrange(self._offered)
        if place >= self._size:
            return None
        del self.rounds[place]  # frees its memory for the new one
        self.rounds.append(make())
        return self.rounds[-1]


class Slots:
    """A random choice of rounds in which some calls are no longer timed. Calls drop out one after the other.

    Each of `size` slots holds one round for each call, all rounds of the call being equally likely: a chosen round
    replaces the earlier one for the calls that still take part.
    """

    def __init__(self, size: int, random: SystemRandom) -> None:
        self._slots: list[dict[str, Round]] = [{} for _ in range(size)]
        self._chosen: list[dict[str, Round]] = []
        self._random, self._offered = random, 0

    def offer(self, make: Callable[[], Round]) -> Round | None:
        """Return a new round of `make` if a slot has chosen it, else None."""
        self._offered += 1
        self._chosen = [slot for slot in self._slots if not self._random.randrange(self._offered)]
        return make() if self._chosen else None

    def add(self, name: str, chosen: Round) -> None:
        """The round that was offered last has a result of `name`."""
        replaced = [slot[name] for slot in self._chosen if name in slot]
        for slot in self._chosen:
            slot[name] = chosen
        for each in replaced:
            if all(slot.get(name) is not each for slot in self._slots):
                each.results.pop(name, None)

    def rounds(self, slots: int | None = None) -> list[Round]:
        """The rounds that are held by the first `slots` slots, or by all."""
        return list(dict.fromkeys(each for slot in self._slots[:slots] for each in slot.values()))
