"""The function of an implementation with the inputs of a case, ready to be timed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import TYPE_CHECKING, Any

from suite.implementations.implementation import Implementation

if TYPE_CHECKING:
    import torch


@dataclass
class BoundCall:
    """`inputs` are the framework's arrays, `arguments` the options of the case."""

    implementation: Implementation
    function: Callable[..., Any]
    inputs: tuple[Any, ...]
    arguments: dict[str, Any]

    def issue(self) -> Any:
        """Start the call; the result may not be ready."""
        return self.function(*self.inputs, **self.arguments)

    def in_turn(self, sets: Sequence[Sequence[torch.Tensor]]) -> Callable[[], Any]:
        """A function like `issue`, whose calls take the next of `sets` of buffers, again and again."""
        inputs = cycle([tuple(map(self.implementation.adapter.to_native, each)) for each in sets])
        return lambda: self.function(*next(inputs), **self.arguments)

    def run(self) -> None:
        """Call, and wait for the result."""
        self.implementation.adapter.wait(self.issue())

    def copied(self, buffers: Sequence[torch.Tensor]) -> bool:
        """True if some arrays are copies of `buffers`, and so do not follow their later values."""
        return not all(map(self.implementation.adapter.shares_memory, self.inputs, buffers))

    def rebind(self, buffers: Sequence[torch.Tensor]) -> None:
        """Bind the present values of `buffers`, if some arrays are copies of them."""
        if self.copied(buffers):
            self.inputs = tuple(map(self.implementation.adapter.to_native, buffers))


def bind(
    implementation: Implementation,
    buffers: Sequence[torch.Tensor],
    arguments: dict[str, Any],
    on_built: Callable[[], None] = lambda: None,
) -> BoundCall:
    """Load an implementation, and call it so that later calls build nothing: this process may not have checked it.

    `on_built` is called after the first call.
    """
    function = implementation.function()
    inputs = tuple(implementation.adapter.to_native(tensor) for tensor in buffers)
    called = implementation.adapter.called_with(function, buffers)
    bound = BoundCall(implementation, called, inputs, implementation.accepted(function, arguments))
    bound.run()
    on_built()
    bound.function = implementation.adapter.called_with(implementation.function_to_time(function, bound.run), buffers)
    return bound
