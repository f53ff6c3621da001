"""The interface of the inputs of timed calls. Inputs change between samples, and results are kept for a check."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


class Inputs(Protocol):
    """Changes the inputs of the calls of one case outside the measured spans.

    All work on the device that it starts counts as preparation of the next sample.
    """

    def change(self) -> None:
        """Give the inputs new values. Called before each call whose latency is measured."""

    def begin_round(self, complete: bool) -> None:
        """Give the inputs the values of a new round. `complete`: the round has every call that can be timed."""

    def run_on_other_values(self, run: Callable[[], None]) -> None:
        """Call `run` while the inputs have other values, then restore the values of the round."""

    def keep(self, name: str, result: object) -> None:
        """Called with the result of each sample, as soon as it is taken."""


class FixedInputs:
    """Inputs that never change, for calls whose results are not judged."""

    def change(self) -> None: ...

    def begin_round(self, complete: bool) -> None: ...

    def run_on_other_values(self, run: Callable[[], None]) -> None:
        run()

    def keep(self, name: str, result: object) -> None: ...
