"""max_pool2d_grad by winners: images of several tiles, and what it refuses."""

from __future__ import annotations

import pytest
import torch

from cuda_ref.max_pool2d_grad.winners import max_pool2d_grad
from suite import ops
from suite.checking.judge import judge

# N, H, W, C, stride, padding: several tiles in both directions, several slabs, pixels that no window holds.
SHAPES = [
    (1, 35, 70, 8, 1, 1),
    (1, 70, 35, 16, 2, 1),
    (2, 33, 64, 72, 2, 0),
    (1, 20, 67, 24, 3, 0),
    (1, 41, 9, 136, 1, 0),
    (1, 38, 45, 8, 5, 1),
]


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_tiles(shape: tuple[int, ...], size: int) -> None:
    N, H, W, C, stride, padding = shape
    op = ops.get("max_pool2d_grad")
    case = op.case((N, H, W, C, size, size, stride, padding), "float32" if size == 2 else "bfloat16", inputs="ties")
    x, dy = inputs = op.make_inputs(case, 1, torch.device("cpu"))
    dx = max_pool2d_grad(x, dy, window=(size, size), stride=stride, padding=padding)
    verdict = judge(dx, op.truth(inputs, case), shape=op.output_shape(case), dtype=op.output_dtype(case))
    assert verdict.agrees, verdict.reason


def test_cases_that_are_not_covered() -> None:
    for shape, window, message in (
        ((1, 8, 8, 8), (2, 3), r"windows must be 2 x 2 or 3 x 3; got \(2, 3\)"),
        ((1, 8, 8, 8), (4, 4), r"windows must be 2 x 2 or 3 x 3; got \(4, 4\)"),
        ((1, 8, 8, 6), (2, 2), "channels of x must be contiguous, in aligned packs of 4"),
    ):
        x = torch.zeros(shape)
        dy = torch.zeros(1, 9 - window[0], 9 - window[1], shape[3])
        with pytest.raises(NotImplementedError, match=message):
            max_pool2d_grad(x, dy, window=window)
