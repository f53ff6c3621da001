"""`cuda/decode` of paged_attention with caches in float8, beside the plain kernel."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from cuda_ref.paged_attention import paged_attention as plain
from cuda_ref.paged_attention.decode import paged_attention as decode
from suite import ops

OP = ops.get("paged_attention")


def inputs_of(D: int, dtype: str, device: str, lengths: str = "ragged") -> list[Tensor]:
    case = OP.case((2, 6, 2, 3, 70, D, 16), dtype, kv="float8_e4m3fn", lengths=lengths)
    return [x.to(device) for x in OP.make_inputs(case, 3, torch.device("cpu"))]


def assert_close(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found.float(), expected.float(), rtol=2e-2, atol=2e-2, equal_nan=True)


@pytest.mark.slow(seconds=10)
@pytest.mark.parametrize("D", [64, 128, 256])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_columns_of_keys_and_values_are_in_order(D: int, dtype: str, device: str) -> None:
    inputs = inputs_of(D, dtype, device)
    values = torch.arange(D, device=device).remainder(31).sub(15).to(torch.float8_e4m3fn)
    inputs[2] = values.expand_as(inputs[2]).contiguous()  # each value is its column
    inputs[6] = torch.full_like(inputs[6], 0.5)
    found = decode(*inputs)
    assert_close(found, plain(*inputs))
    seen = found.abs().sum(-1) > 0
    assert torch.equal(found[seen].float(), (values.float() / 2).expand_as(found[seen]))


def test_rows_of_q_may_lie_far_beyond_the_range_of_float16(device: str) -> None:
    inputs = inputs_of(128, "bfloat16", device)
    inputs[0] *= torch.tensor([2.0**-60, 1.0, 2.0**20], device=device, dtype=torch.bfloat16)[:, None, None]
    for scale in (2.0**-20, 1.0):
        assert_close(decode(*inputs, sm_scale=scale), plain(*inputs, sm_scale=scale))


def test_the_scale_of_keys_may_be_negative(device: str) -> None:
    inputs = inputs_of(64, "bfloat16", device)
    right = decode(*inputs)
    inputs[5] = -inputs[5]
    found = decode(*inputs)
    assert_close(found, plain(*inputs))
    assert not torch.allclose(found.float(), right.float(), atol=0.1)


def test_a_nan_reaches_the_queries_that_see_its_key(device: str) -> None:
    inputs = inputs_of(64, "float16", device, "equal")
    inputs[2][inputs[3][0, 68 // 16], 68 % 16, 0, 5] = math.nan  # value 68: hidden from the first query
    found = decode(*inputs)
    expected = plain(*inputs)
    assert torch.equal(found.isnan(), expected.isnan())
    assert found[0, 1:, :3, 5].isnan().all()
    assert int(found.isnan().sum()) == 6
