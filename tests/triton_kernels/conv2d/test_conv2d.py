"""conv2d in Triton by boxes of images, which TMA reads: what it covers, its boxes, and when they are chosen."""

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import conv2d as by_torch

from triton_kernels._runtime.interpreter import INTERPRET
from triton_kernels.conv2d import auto, boxes


@pytest.mark.parametrize(
    ("N", "H", "W", "C", "K", "R", "S", "padding"),
    [(7, 8, 7, 64, 64, 3, 2, 1), (60, 2, 2, 64, 56, 1, 1, 0), (2, 16, 16, 128, 120, 1, 3, 0)],
    ids=["images_overhang", "pointwise", "columns_overhang"],
)
def test_boxes_are_pytorchs_convolution(N: int, H: int, W: int, C: int, K: int, R: int, S: int, padding: int) -> None:
    if not INTERPRET:
        pytest.skip("needs Triton's interpreter")
    x, weight = (torch.randint(-4, 5, shape).half() for shape in ((N, H, W, C), (K, R, S, C)))
    assert auto.config(x, weight, padding=padding) == "boxes"
    expected = by_torch(x.float().permute(0, 3, 1, 2), weight.float().permute(0, 3, 1, 2), padding=padding)
    found = boxes.conv2d(x, weight, padding=padding)
    torch.testing.assert_close(found, expected.permute(0, 2, 3, 1).half(), rtol=0, atol=0)


def test_boxes_overhang_least() -> None:
    sizes = {56: (8, 8), 28: (4, 4), 14: (2, 2), 7: (1, 1)}
    assert {size: boxes.box_of(256, size, size) for size in sizes} == sizes


@pytest.mark.parametrize(
    ("change", "stride", "precision"),
    [
        ({}, 2, "ieee"),
        ({"N": 1}, 1, "ieee"),
        ({"C": 24}, 1, "ieee"),
        ({"K": 16}, 1, "ieee"),
        ({"K": 68}, 1, "ieee"),
        ({"dtype": torch.float32}, 1, "ieee"),
    ],
    ids=["stride", "few_pixels", "few_channels", "few_outputs", "unaligned_outputs", "float32"],
)
def test_other_convolutions_are_left_to_taps(change: dict[str, int], stride: int, precision: str) -> None:
    size = {"N": 128, "C": 64, "K": 64, "dtype": torch.float16} | change
    x = torch.empty(size["N"], 7, 7, size["C"], dtype=size["dtype"])  # type: ignore[arg-type]
    weight = torch.empty(size["K"], 3, 3, size["C"], dtype=size["dtype"])  # type: ignore[arg-type]
    assert auto.config(x, weight, stride=stride, padding=1, precision=precision) == "taps"


def test_few_channels_are_gathered() -> None:
    assert auto.config(torch.empty(2, 9, 9, 3), torch.empty(8, 3, 3, 3)) == "gather"
