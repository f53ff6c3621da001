"""Memory beside inputs and results: what is written there is found, what is read there is NaN."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from checked_calls import CPU, JAX, TORCH, kind, problem, run

from suite.checking.memory import copies_with_bands, elements_between_bands, whole_storage
from suite.problem.guard_bands import BAND_BYTES, bands_intact, has_bands

DTYPES = ("float32", "float16", "bfloat16", "float8_e4m3fn")


def beside(tensor: torch.Tensor, elements: int) -> torch.Tensor:
    """The element so far after the last one of a contiguous tensor, or before the first, as a vector of one."""
    at = tensor.storage_offset() + (tensor.numel() - 1 + elements if elements > 0 else elements)
    return tensor.as_strided((1,), (1,), at)


@pytest.mark.parametrize("name", DTYPES)
def test_bands_are_nan_and_leave_strides_and_values(name: str) -> None:
    given = torch.arange(12.0).reshape(3, 4).to(getattr(torch, name)).mT[1:]
    (copy,) = copies_with_bands((given,))
    assert torch.equal(copy.float(), given.float())
    assert copy.stride() == given.stride()
    assert copy.untyped_storage().nbytes() == given.untyped_storage().nbytes() + 2 * BAND_BYTES
    assert elements_between_bands(copy).float().tolist() == list(range(12))
    everything = whole_storage(copy).view(copy.dtype).float()
    assert int(everything.isnan().sum()) * copy.element_size() == 2 * BAND_BYTES
    assert bands_intact(copy)


@pytest.mark.parametrize("elements", [1, 16, -1])
@pytest.mark.parametrize("operand", [0, 1])
def test_a_write_beside_an_input_is_refused(operand: int, elements: int) -> None:
    def add(*inputs: torch.Tensor) -> torch.Tensor:
        beside(inputs[operand], elements).fill_(1.0)
        return inputs[0] + inputs[1]

    found = run(add)
    assert kind(found) == "wrote outside"
    assert f"beside argument {operand + 1}" in found.reason


@pytest.mark.parametrize(
    "allocate",
    [torch.add, lambda a, b: torch.empty_like(a).copy_(a + b), lambda a, b: torch.add(a, b, out=torch.empty(len(a)))],
    ids=["by an operator", "empty_like", "out="],
)
@pytest.mark.parametrize("elements", [1, 16, -1])
def test_a_write_beside_the_result_is_refused(allocate: Callable[..., torch.Tensor], elements: int) -> None:
    seen = []

    def add(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        result = allocate(a, b)
        seen.append(has_bands(result))
        if len(seen) > 1:
            beside(result, elements).fill_(1.0)
        return result

    found = run(add)
    assert kind(found) == "wrote outside"
    assert "beside its result" in found.reason
    assert all(seen)


@pytest.mark.parametrize("elements", [1, -1])
def test_a_read_beside_an_input_shows_as_nan(elements: int) -> None:
    def add(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        result = a + b
        result[-1:] += 0.0 * beside(b, elements)
        return result

    assert kind(run(add)) == "not finite"


def test_other_frameworks_get_their_arrays_over_the_same_memory() -> None:
    at = problem(shape=(1025,))
    assert all(JAX.shares_memory(JAX.to_native(buffer), buffer) for buffer in at.buffers)


@pytest.mark.parametrize("made", ["view", "in place", "of another size"])
def test_tensors_that_are_not_new_results_stay_where_they_are(made: str) -> None:
    given = torch.zeros(6)
    calls: dict[str, Callable[[], Any]] = {
        "view": lambda: given.view(2, 3),
        "in place": lambda: given.add_(1),
        "of another size": lambda: torch.zeros(7),
    }
    assert not has_bands(TORCH.poisoned(calls[made], [(6,)], ["float32"], CPU))
