"""conv2d: its truth is PyTorch's in float64; its bounds tell arithmetics apart; sizes that contradict each other."""

from __future__ import annotations

import pytest
import torch
from judging import CPU, RIGHT

from suite import ops
from suite.checking.judge import judge
from suite.core.errors import UsageError
from suite.problem import blocks
from suite.variants._rounding import rounded

OP = ops.get("conv2d")
SHAPE = (2, 9, 7, 64, 24, 3, 3, 1, 1)


def by_torch(x: torch.Tensor, weight: torch.Tensor, stride: int, padding: int) -> torch.Tensor:
    images, taps = (each.double().permute(0, 3, 1, 2) for each in (x, weight))
    return torch.nn.functional.conv2d(images, taps, stride=stride, padding=padding).permute(0, 2, 3, 1)


@pytest.mark.parametrize("shape", [*OP.ragged, SHAPE], ids=str)
@pytest.mark.parametrize("room", [2**25, 300], ids=["images", "rows"])
def test_the_truth_is_that_of_torch(shape: tuple[int, ...], room: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "BLOCK_ELEMENTS", room)
    case = OP.case(shape)
    inputs = OP.make_inputs(case, 0, CPU)
    value = torch.full(OP.output_shape(case), torch.nan, dtype=torch.float64)
    for piece in OP.truth(inputs, case):
        value[piece.index] = piece.value
    torch.testing.assert_close(value, by_torch(*inputs, case["stride"], case["padding"]), rtol=1e-12, atol=1e-12)


def ratio(value: torch.Tensor, inputs: tuple[torch.Tensor, ...], dtype: str) -> float:
    case = OP.case(SHAPE, dtype)
    output = value.to(getattr(torch, dtype))
    return judge(output, OP.truth(inputs, case), shape=OP.output_shape(case), dtype=dtype).error_ratio


@pytest.mark.parametrize(("dtype", "coarser"), [("float32", "tf32"), ("float32", "float16"), ("float16", "bfloat16")])
def test_factors_of_fewer_digits_are_refused(dtype: str, coarser: str) -> None:
    inputs = OP.make_inputs(OP.case(SHAPE, dtype), 0, CPU)
    assert ratio(by_torch(*inputs, 1, 1), inputs, dtype) < RIGHT
    assert ratio(by_torch(*(rounded(x.double(), coarser) for x in inputs), 1, 1), inputs, dtype) > 1.5


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_sums_in_16_bits_are_refused(dtype: str) -> None:
    x, weight = inputs = OP.make_inputs(OP.case(SHAPE, dtype), 0, CPU)
    total = torch.zeros(OP.output_shape(OP.case(SHAPE)), dtype=torch.float64)
    for r in range(3):
        alone = torch.zeros_like(weight)
        alone[:, r] = weight[:, r]
        total = rounded(total + by_torch(x, alone, 1, 1), dtype)
    assert ratio(total, inputs, dtype) > 1.1


def test_stride_and_padding_have_defaults() -> None:
    assert OP.parse_shapes("N=1,H=W=8,C=K=16,R=S=3") == [(1, 8, 8, 16, 16, 3, 3, 1, 0)]
    assert OP.parse_shapes("N=1,H=W=8,C=K=16,R=S=3,padding=1,stride=1,2")[1][7:] == (2, 1)


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ("H=W=2,R=S=3", r"R=3 must be at most H \+ 2 padding = 2"),
        ("H=3,W=2,R=S=3", r"S=3 must be at most W \+ 2 padding = 2"),
        ("H=W=8,R=S=3,stride=0", "stride=0 must be at least 1"),
        ("H=W=8,R=0,S=3", "R=0 must be at least 1"),
    ],
)
def test_sizes_that_contradict_each_other(sizes: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        OP.parse_shapes(f"N=1,C=K=4,{sizes}")
