"""block_scaled_matmul: sums of 128 in the tensor cores' digits pass, factors that are rounded to 16 bits do not."""

from __future__ import annotations

import pytest
import torch
from judging import CPU, RIGHT, judge_output

from suite import ops
from suite.numerics.float8 import FLOAT8_SUM_BITS, MMA_WIDTH
from suite.ops.block_scaled_matmul import GROUP
from suite.variants._rounding import truncated

OP = ops.get("block_scaled_matmul")
WIDTHS = (16, MMA_WIDTH)
"""Products that a tensor core may add in one step."""


def on_tensor_cores(inputs: tuple[torch.Tensor, ...], width: int) -> torch.Tensor:
    """The product with sums of 14 bits for each group, and float32 sums of these, times their scales."""
    a, scale_a, b, scale_b = inputs
    x, y, of_b = a.double(), b.double(), scale_b.repeat_interleave(GROUP, 0)[: len(b)]
    total = torch.zeros(len(a), len(b))
    for group, start in enumerate(range(0, a.shape[1], GROUP)):
        acc = torch.zeros(len(a), len(b), dtype=torch.float64)
        for first in range(start, min(start + GROUP, a.shape[1]), width):
            span = slice(first, min(first + width, start + GROUP))
            products = x[:, None, span] * y[None, :, span]
            largest = torch.maximum(products.abs().amax(2), acc.abs()).clamp(min=2.0**-40)
            unit = torch.exp2(largest.log2().floor() - (FLOAT8_SUM_BITS - 1))
            acc = ((products / unit[..., None]).trunc().sum(2) + (acc / unit).trunc()) * unit
            acc = truncated(acc, FLOAT8_SUM_BITS)
        scale = scale_a[:, group, None] * of_b[:, group]
        total = total + acc.float() * scale
    return total.bfloat16()


@pytest.mark.parametrize("family", ["normal", "uneven", "largest", "exact_sums", "cancellation", "subnormal"])
@pytest.mark.parametrize("width", WIDTHS)
def test_sums_of_a_group_in_14_bits_pass(family: str, width: int) -> None:
    case = OP.case((24, 140, 300 if family != "cancellation" else 512), inputs=family)
    inputs = OP.make_inputs(case, 0, CPU)
    assert judge_output(OP, case, on_tensor_cores(inputs, width)).error_ratio < RIGHT


def test_exact_sums_of_groups_have_no_room_for_an_error_of_a_scale() -> None:
    case = OP.case((24, 32, 4096), inputs="exact_sums")
    a, scale_a, b, scale_b = OP.make_inputs(case, 0, CPU)
    for error, wrong in ((0.0, False), (2.0**-20, False), (2.0**-7, True)):
        found = on_tensor_cores((a, scale_a * (1.0 + error), b, scale_b), MMA_WIDTH)
        assert judge_output(OP, case, found).agrees is not wrong


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16])
def test_codes_times_scales_may_be_float32_and_not_16_bits(kind: torch.dtype) -> None:
    case = OP.case((33, 140, 512), inputs="cancellation")
    a, scale_a, b, scale_b = OP.make_inputs(case, 0, CPU)
    x = a.float() * scale_a.repeat_interleave(GROUP, 1)
    y = b.float() * scale_b.repeat_interleave(GROUP, 0)[:140].repeat_interleave(GROUP, 1)
    assert judge_output(OP, case, (x @ y.mT).bfloat16()).error_ratio < RIGHT
    assert judge_output(OP, case, (x.to(kind).float() @ y.to(kind).float().mT).bfloat16()).error_ratio > 1.0


def test_a_group_with_a_scale_of_0_counts_nothing_but_its_nan() -> None:
    case = OP.case((2, 3, 200))
    a, scale_a, b, scale_b = OP.make_inputs(case, 0, CPU)
    scale_a[0] = 0.0
    a.view(torch.uint8)[1, 5] = 0x7F
    (truth,) = OP.truth((a, scale_a, b, scale_b), case)
    assert truth.value[0].abs().max() == 0.0
    assert bool(truth.value[1].isnan().all())
