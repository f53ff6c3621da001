"""The interface of the inputs of timed calls, which change between samples and whose results are kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


class Inputs(Protocol):
    """What happens to the inputs of the calls of one case outside the measured spans.

    Everything that runs on the device counts as preparation of the sample after it.
    """

    def change(self) -> None:
        """Give the inputs new values, as before each call of which the latency is measured."""

    def begin_round(self, complete: bool) -> None:
        """Give the inputs the values of a new round. `complete`: every call that can be timed is in it."""

    def run_on_other_values(self, run: Callable[[], None]) -> None:
        """Run something while the inputs have other values, then put those of the round back in place."""

    def keep(self, name: str, result: object) -> None:
        """Called with the result of each sample, as soon as it is taken."""


class FixedInputs:
    """Inputs that never change, of calls whose results are not judged."""

    def change(self) -> None: ...

    def begin_round(self, complete: bool) -> None: ...

    def run_on_other_values(self, run: Callable[[], None]) -> None:
        run()

    def keep(self, name: str, result: object) -> None: ...
