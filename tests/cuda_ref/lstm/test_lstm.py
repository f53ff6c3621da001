"""cuda/persistent and cuda/wgmma of lstm: what they refuse, and that a launcher is repeated from the third call on."""

from __future__ import annotations

import pytest
import torch

from cuda_ref._runtime import kept as _kept
from cuda_ref.lstm import wgmma as lstm_wgmma
from cuda_ref.lstm.persistent import lstm
from suite import ops

OP = ops.get("lstm")


def inputs(shape: tuple[int, ...], dtype: str = "float32", seed: int = 0) -> tuple[torch.Tensor, ...]:
    return OP.make_inputs(OP.case(shape, dtype), seed, torch.device("cpu"))


def test_more_units_than_registers_hold_are_refused() -> None:
    with pytest.raises(NotImplementedError, match="H must be at most 1024, for weights in registers; got 1025"):
        lstm(*inputs((1, 1, 1, 1025)))


def test_more_rows_than_shared_memory_holds_are_refused() -> None:
    with pytest.raises(NotImplementedError, match="c of 1025 rows does not fit"):
        lstm(*inputs((1, 1025, 1, 8)))


@pytest.mark.parametrize("batch", [1, 6], ids=["words", "tensor_cores"])
def test_a_repeated_call_gives_the_same_bits(batch: int) -> None:
    _kept.forget()
    first, other = (inputs((3, batch, 8, 16), "bfloat16", seed) for seed in range(2))
    expected = lstm(*first)
    for given in (first, other, first):
        found = lstm(*given)
    assert len(_kept._thread.plans) == 1
    assert all(torch.equal(x, y) for x, y in zip(found, expected, strict=True))


@pytest.mark.parametrize(
    ("size", "dtype"), [(16, "float32"), (520, "float16"), (12, "bfloat16")], ids=["float32", "large", "odd"]
)
def test_wgmma_refuses_what_its_clusters_cannot_hold(size: int, dtype: str) -> None:
    with pytest.raises(NotImplementedError, match=f"H a multiple of 8 up to 512; got torch.{dtype} and H={size}"):
        lstm_wgmma.lstm(*inputs((1, 1, 1, size), dtype))


def test_wgmma_needs_no_gpu_for_an_empty_result() -> None:
    y, h, c = lstm_wgmma.lstm(*inputs((3, 0, 5, 8), "bfloat16"))
    assert (y.shape, h.shape, c.shape) == ((3, 0, 8), (0, 8), (0, 8))
