"""Uninitialised memory holds NaN in a checked call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from checked_calls import CPU, NUMPY, TORCH, kind, run

from suite.frameworks._poison import Poison
from suite.frameworks.base import Adapter


def test_uninitialised_tensors_hold_nan_and_large_odd_integers() -> None:
    def allocate() -> list[torch.Tensor]:
        like = torch.zeros(3)
        floats = [torch.empty(3), torch.empty_like(like), torch.empty_strided((2, 2), (1, 2)), like.new_empty(3)]
        floats += [torch.empty_permuted((2, 3), (1, 0)), like.new_empty_strided((2,), (1,)), torch.Tensor(3)]
        floats += [torch.empty(3, dtype=dtype) for dtype in (torch.float16, torch.bfloat16, torch.float64)]
        integers = [torch.empty(3, dtype=dtype) for dtype in (torch.uint8, torch.int8, torch.int32, torch.int64)]
        assert all(bool(tensor.isnan().all()) for tensor in floats)
        assert all(int(tensor.min()) == torch.iinfo(tensor.dtype).max for tensor in integers)
        assert all(int(tensor.min()) % 2 for tensor in integers)
        assert bool(torch.empty(2, dtype=torch.bool).all())
        assert not bool(torch.zeros(3).any())
        return floats

    assert TORCH.poisoned(allocate, [(3,)], ["float32"], CPU)


def test_uninitialised_numpy_arrays_hold_nan() -> None:
    def allocate() -> Any:
        return np.empty(3), np.empty_like(np.zeros((2, 2), np.float16)), np.empty(3, np.int32), np.zeros(2)

    floats, half, integers, zeros = NUMPY.poisoned(allocate, [(3,)], ["float32"], CPU)
    assert np.isnan(floats).all()
    assert np.isnan(half).all()
    assert (integers == np.iinfo(np.int32).max).all()
    assert not zeros.any()
    assert np.empty.__module__ == "numpy", "restored"


@pytest.mark.parametrize("adapter", [TORCH, NUMPY], ids=lambda adapter: adapter.name)
def test_an_element_that_is_not_written_is_refused(adapter: Adapter) -> None:
    empty_like: Callable[[Any], Any] = torch.empty_like if adapter is TORCH else lambda a: np.empty_like(a)

    def add(a: Any, b: Any) -> Any:
        out = empty_like(a)
        out[:-1] = (a + b)[:-1]
        return out

    found = run(add, adapter)
    assert kind(found) == "not finite"
    assert "at [999] got nan" in found.reason


def test_a_tensor_subclass_that_torch_cannot_make_under_poison_is_made_without() -> None:
    from torch.nn.attention.bias import causal_lower_right

    assert TORCH.poisoned(lambda: causal_lower_right(3, 5), [(3,)], ["float32"], CPU) is not None
    with pytest.raises(RuntimeError, match="something else"):
        TORCH.poisoned(lambda: (_ for _ in ()).throw(RuntimeError("something else")), [(3,)], ["float32"], CPU)


def test_poison_ends_with_the_call() -> None:
    with Poison():
        pass
    assert torch.zeros(2).sum() == 0
    assert torch._C._len_torch_dispatch_stack() == 0
