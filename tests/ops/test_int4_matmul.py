"""int4_matmul: weights rounded once and sums in float32 pass; weights rounded twice and sums in 16 bits do not."""

from __future__ import annotations

import pytest
import torch
from judging import CPU, RIGHT, judge_output
from right_kernels.torch_products import int4_matmul__zero_points_by_row_sums

from suite import ops
from suite.ops.int4_matmul import GROUP, dequantized, packed, unpacked

OP = ops.get("int4_matmul")


@pytest.mark.parametrize("k", [1, 7, 8, 300])
def test_codes_survive_packing(k: int) -> None:
    codes = torch.randint(16, (5, k), dtype=torch.uint8)
    assert torch.equal(unpacked(packed(codes), k), codes)
    assert packed(codes)[0, 0] & 15 == codes[0, 0]


def test_a_weight_is_its_code_less_zero_times_scale() -> None:
    weight, scale = torch.tensor([[0x3F]], dtype=torch.uint8), torch.tensor([[0.5]], dtype=torch.bfloat16)
    assert dequantized(weight, scale, None, 2).tolist() == [[3.5, -2.5]]
    assert dequantized(weight, scale, torch.tensor([[3]], dtype=torch.uint8), 2).tolist() == [[6.0, 0.0]]


@pytest.mark.parametrize("dtype", OP.dtypes)
@pytest.mark.parametrize("family", ["normal", "uneven", "growing_sums", "cancellation", "exact_products"])
def test_weights_may_be_rounded_once_or_not_at_all(dtype: str, family: str) -> None:
    case = OP.case((24, 70, 512), dtype, inputs=family, zeros=True)
    x, *weights = OP.make_inputs(case, 0, CPU)
    w, kind = dequantized(*weights, 512), x.dtype
    assert judge_output(OP, case, (x.float() @ w.float().mT).to(kind)).error_ratio < RIGHT
    assert judge_output(OP, case, (x.float() @ w.to(kind).float().mT).to(kind)).error_ratio < RIGHT


def test_sums_of_groups_in_16_bits_do_not_pass() -> None:
    case = OP.case((33, 70, 512), inputs="cancellation")
    x, weight, scale = OP.make_inputs(case, 0, CPU)
    codes, found = unpacked(weight, 512).float() - 8, torch.zeros(33, 70)
    for group in range(4):
        span = slice(group * GROUP, (group + 1) * GROUP)
        found += (x[:, span].float() @ codes[:, span].mT).bfloat16() * scale[:, group].float()
    assert judge_output(OP, case, found.bfloat16()).error_ratio > 1.0


def test_a_group_with_a_scale_of_0_counts_nothing_but_its_nan() -> None:
    case = OP.case((2, 3, 200))
    x, weight, scale = OP.make_inputs(case, 0, CPU)
    scale[0] = 0.0
    x[1, 5] = torch.nan
    (truth,) = OP.truth((x, weight, scale), case)
    assert truth.value[0, 0] == 0.0
    assert bool(truth.value[1].isnan().all())


def test_zero_points_may_be_subtracted_from_the_sums_of_a_group() -> None:
    """An infinite x makes both sums infinite, and their difference NaN where a weight's sign decides otherwise."""
    cases = OP.telling_cases("bfloat16", OP.precisions("bfloat16")[0])
    for case in (case for name, case in cases.items() if "infinity" in name or "cancellation" in name):
        inputs = OP.make_inputs(case, 0, CPU)
        assert judge_output(OP, case, int4_matmul__zero_points_by_row_sums(*inputs)).agrees, case.label
