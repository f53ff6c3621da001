"""conv2d by torch: strides in bfloat16 on a CPU, where oneDNN's tiles (AMX) leave results unwritten."""

from __future__ import annotations

import pytest
import torch

from torch_impls.conv2d import conv2d


@pytest.mark.parametrize(
    ("shape", "window", "stride", "padding"),
    [((3, 33, 1, 31), (5, 3), 3, 2), ((3, 33, 5, 16), (2, 4), 3, 0), ((2, 1, 1, 3), (1, 1), 2, 1)],
)
def test_strides_in_bfloat16(shape: tuple[int, ...], window: tuple[int, int], stride: int, padding: int) -> None:
    source = torch.Generator().manual_seed(0)
    x = torch.randn(shape, generator=source).bfloat16()
    weight = torch.randn(8, *window, shape[3], generator=source).bfloat16()
    exact = conv2d(x.float(), weight.float(), stride=stride, padding=padding)
    found = conv2d(x, weight, stride=stride, padding=padding)
    assert found.dtype == torch.bfloat16
    assert torch.equal(found, exact.bfloat16())
