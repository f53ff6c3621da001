"""cuda/persistent and cuda/wgmma of lstm: what they refuse, and that a launcher is repeated from the third call on."""

from __future__ import annotations

import re

import pytest
import torch

from cuda_ref._runtime import kept as _kept
from cuda_ref.lstm import wgmma as lstm_wgmma
from cuda_ref.lstm.persistent import lstm
from suite import ops
from suite.ops.lstm import by_layer

OP = ops.get("lstm")


def inputs(
    shape: tuple[int, ...], dtype: str = "float32", seed: int = 0, layers: str = "1"
) -> tuple[torch.Tensor, ...]:
    return OP.make_inputs(OP.case(shape, dtype, layers=layers), seed, torch.device("cpu"))


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


def test_each_of_several_layers_is_repeated() -> None:
    _kept.forget()
    first, other = (inputs((3, 2, 8, 8), "bfloat16", seed, "3") for seed in range(2))
    expected = lstm(*first)
    for given in (first, other, first):
        found = lstm(*given)
    assert len(_kept._thread.plans) == 1, "all layers are of one kind"
    assert all(torch.equal(x, y) for x, y in zip(found, expected, strict=True))
    y = first[0]
    for layer, (w_ih, w_hh, bias, h0, c0) in enumerate(by_layer(first[1:])):
        y, h, c = lstm(y, w_ih, w_hh, bias, h0, c0)
        assert torch.equal(h, expected[1][layer])
        assert torch.equal(c, expected[2][layer])
    assert torch.equal(y, expected[0])


def test_the_operator_of_several_layers_has_their_results() -> None:
    given = inputs((3, 2, 4, 8), layers="2")
    found = torch.compile(lstm, backend="eager", fullgraph=True)(*given)
    assert all(torch.equal(x, y) for x, y in zip(found, lstm(*given), strict=True))


@pytest.mark.parametrize(
    ("name", "place", "shape", "reason"),
    [
        ("h0", 4, (2, 8), r"so h0 must be (2, 2, H); got (2, 8)"),
        ("w_hh", 2, (1, 32, 8), r"h0 is (L, B, H)=(2, 2, 8), so w_hh must be (2, 32, 8); got (1, 32, 8)"),
        ("w_ih_upper", 6, (1, 32, 4), r"so w_ih_upper must be (1, 32, 8); got (1, 32, 4)"),
        ("w_ih_upper", 6, (32, 8), r"w_ih_upper must be (L - 1, 4 H, H); got (32, 8)"),
    ],
)
def test_operands_of_other_layers_are_refused(name: str, place: int, shape: tuple[int, ...], reason: str) -> None:
    given = list(inputs((3, 2, 4, 8), layers="2"))
    given[place] = torch.zeros(shape)
    with pytest.raises(ValueError, match=re.escape(reason)):
        lstm(*given)


@pytest.mark.parametrize(
    ("size", "dtype"), [(16, "float32"), (520, "float16"), (12, "bfloat16")], ids=["float32", "large", "odd"]
)
def test_wgmma_refuses_what_its_clusters_cannot_hold(size: int, dtype: str) -> None:
    with pytest.raises(NotImplementedError, match=f"H a multiple of 8 up to 512; got torch.{dtype} and H={size}"):
        lstm_wgmma.lstm(*inputs((1, 1, 1, size), dtype))


def test_wgmma_needs_no_gpu_for_an_empty_result() -> None:
    y, h, c = lstm_wgmma.lstm(*inputs((3, 0, 5, 8), "bfloat16"))
    assert (y.shape, h.shape, c.shape) == ((3, 0, 8), (0, 8), (0, 8))
