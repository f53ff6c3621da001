"""attention and its gradient at large sizes: equal bits in twenty calls, and memory that grows with S alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch

from suite import ops
from suite.implementations import builtin
from suite.implementations.builtin import Implementation

if TYPE_CHECKING:
    from suite.hardware.device import Device
    from suite.problem.case import Case

OPERATIONS = ("attention", "attention_grad")
FRAMEWORKS = ("triton", "cuda", "jax")
OWN = [
    each
    for name in OPERATIONS
    for each in builtin.implementations(name)
    if each.framework in FRAMEWORKS and each.vendor is None
]
S = 65536
FLOAT32_ROWS = 16
"""Most memory of a call beyond inputs and results, in arrays of q's shape in float32."""
each_own = pytest.mark.parametrize("implementation", OWN, ids=[f"{each.operation}-{each.name}" for each in OWN])
pytestmark = pytest.mark.gpu


def called_once(implementation: Implementation, where: Device, case: Case) -> tuple[Any, ...]:
    """The inputs of a case, after a call, which compiles and tunes. Skips what the implementation does not cover."""
    if (obstacle := implementation.obstacle(where, case)) is not None:
        pytest.skip(f"{obstacle[0]}: {obstacle[1]}")
    op = ops.get(implementation.operation)
    inputs = tuple(map(implementation.adapter.to_native, op.make_inputs(case, 0, torch.device("cuda"))))
    try:
        implementation.adapter.wait(implementation.function()(*inputs, **op.arguments(case)))
    except NotImplementedError as error:
        pytest.skip(f"unsupported: {error}")
    return inputs


@pytest.mark.parametrize("D", [64, 128])
@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
@each_own
def test_twenty_calls_give_the_same_bits(implementation: Implementation, where: Device, causal: bool, D: int) -> None:
    op = ops.get(implementation.operation)
    slow = implementation.name == "cuda"  # no tensor cores
    case = op.case((1, 8, 2, 1100, 1100, D) if slow else (2, 16, 4, 4000, 4100, D), "bfloat16", causal=causal)
    inputs, function = called_once(implementation, where, case), implementation.function()

    def results() -> tuple[torch.Tensor, ...]:
        found = function(*inputs, **op.arguments(case))
        return tuple(map(implementation.adapter.to_torch, found if isinstance(found, tuple) else (found,)))

    first = results()
    for _ in range(20):
        assert all(torch.equal(one, other) for one, other in zip(results(), first, strict=True))


@each_own
def test_memory_does_not_grow_with_the_square_of_s(implementation: Implementation, where: Device) -> None:
    op = ops.get(implementation.operation)
    case = op.case((1, 1, 1, S, S, 64), "bfloat16")
    inputs = called_once(implementation, where, case)
    peak = implementation.adapter.peak_bytes(implementation.function(), inputs, op.arguments(case))
    assert peak is not None
    assert peak <= FLOAT32_ROWS * S * 64 * 4, f"S * S bytes are {S * S}"
