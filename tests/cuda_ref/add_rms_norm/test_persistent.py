"""add_rms_norm by blocks that stay: several rows for a block, and what it refuses."""

from __future__ import annotations

import pytest
import torch

from cuda_ref.add_rms_norm.persistent import add_rms_norm
from suite import ops
from suite.checking.judge import judge
from suite.problem import outputs


@pytest.mark.parametrize(
    ("shape", "dtype"), [((3, 8200), "float32"), ((2, 32776), "bfloat16"), ((1, 16384), "float16")], ids=str
)
def test_rows_in_turn(shape: tuple[int, int], dtype: str) -> None:
    op = ops.get("add_rms_norm")
    case = op.case(shape, dtype)
    inputs = op.make_inputs(case, 1, torch.device("cpu"))
    found = outputs.joined(list(add_rms_norm(*inputs, **op.arguments(case))))
    verdict = judge(found, op.truth(inputs, case), shape=op.output_shape(case), dtype=op.output_dtype(case))
    assert verdict.agrees, verdict.reason


def test_cases_that_are_not_covered() -> None:
    for size, message in (
        (8184, "rows must have at least 32768 bytes; got 32736"),
        (8193, "must begin and end at multiples of 16"),
        (100_000, "cudaErrorNotSupported|does not cover|not support"),
    ):
        x = torch.zeros(1, size)
        with pytest.raises(NotImplementedError, match=message):
            add_rms_norm(x, x, x[0], eps=1e-6)
