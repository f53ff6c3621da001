"""cumsum: sums in float32 in any usual order are right, and sums in fewer bits are not."""

from __future__ import annotations

import pytest
import torch
from judging import CPU, judge_output

from suite import ops
from suite.implementations import builtin
from suite.numerics.bounds import longest_chain
from suite.numerics.formats import DTYPES
from suite.ops.cumsum import longest_chains

OP = ops.get("cumsum")


def by_blocks(x: torch.Tensor, size: int) -> torch.Tensor:
    """Prefix sums in float32: numbers within blocks, and sums of blocks, one after the other."""
    m, n = x.shape
    within = torch.nn.functional.pad(x, (0, -n % size)).view(m, -1, size).clone()
    for i in range(1, size):
        within[:, :, i] += within[:, :, i - 1]
    before = torch.zeros(m, 1)
    for block in within.unbind(dim=1):
        block += before
        before = block[:, -1:].clone()
    return within.view(m, -1)[:, :n].contiguous()


@pytest.mark.parametrize("inputs", ["normal", "positive", "equal", "cancellation"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_sums_in_float32_are_right_in_any_order_and_sums_in_fewer_bits_are_not(dtype: str, inputs: str) -> None:
    case = OP.case((4, 2056), dtype, inputs=inputs)
    x = OP.make_inputs(case, 0, CPU)[0].float()
    kind = getattr(torch, dtype)
    for size in (1, 32, 256):
        assert judge_output(OP, case, by_blocks(x, size).to(kind)).error_ratio < 0.7
    coarse = x.cumsum(dim=1) * (1.0 + 2.0**-7)
    assert judge_output(OP, case, coarse.to(kind)).error_ratio > 1.2


def test_the_chains_are_those_of_sums() -> None:
    terms = [1, 2, 4096, 2**22 - 1, 2**22, 2**24 + 1, 10**9]
    assert longest_chains(torch.tensor(terms, dtype=torch.float64)).tolist() == list(map(longest_chain, terms))


@pytest.mark.parametrize("name", ["triton/lookback", "cuda/lookback"])
def test_a_row_of_more_than_32_parts_adds_the_totals_before_it(name: str, device: str) -> None:
    implementation = builtin.find("cumsum", name)
    if device not in implementation.adapter.devices:
        pytest.skip(f"{name} does not run on {device}")
    x = torch.randint(-1, 2, (2, 33 * 8192 + 8), generator=torch.Generator().manual_seed(0)).float()
    found = implementation.function()(x.to(device)).cpu()
    assert torch.equal(found.double(), x.double().cumsum(dim=1))  # sums of small integers are exact in any order
