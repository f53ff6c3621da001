"""Attention by warps with different tasks: queries as a matrix, and results at sizes at which it is chosen."""

from __future__ import annotations

import pytest
import torch

from suite import ops
from suite.checking.check import check
from suite.checking.problem import Problem
from suite.implementations import builtin
from triton_kernels.attention._specialized import TILES, covers, q_matrix

B, H, S, D = 2, 3, 5, 8
LAYOUTS = {  # queries (B, H, S, D) -> rows, rows to the next batch entry and head, columns to the next head
    "contiguous": (torch.empty(B, H, S, D), (B * H * S, H * S, S, 0)),
    "heads inside": (torch.empty(B, S, H, D).transpose(1, 2), (B * S, S, 0, D)),
    "of a projection": (torch.empty(B, S, 3, H, D)[:, :, 1].transpose(1, 2), (B * S, S, 0, D)),
    "one batch entry": (torch.empty(1, H, S, D), (H * S, 0, S, 0)),
    "odd distance": (torch.empty(B, H * S * D + 4)[:, : H * S * D].view(B, H, S, D), None),
    "broadcast": (torch.empty(B, H, 1, D).expand(B, H, S, D), None),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_queries_are_rows_of_a_matrix(name: str) -> None:
    q, expected = LAYOUTS[name]
    assert q_matrix(q) == expected
    if expected is not None:
        _, rows_b, rows_h, columns_h = expected
        for b, h in ((0, 1), (q.shape[0] - 1, 2)):
            distance = q[b, h, 0].data_ptr() - q.data_ptr()
            assert distance == 4 * ((b * rows_b + h * rows_h) * q.stride(2) + h * columns_h)


@pytest.mark.gpu
@pytest.mark.parametrize("inputs", ["normal", "infinity", "nan", "minus_infinity_all", "large_logits", "sm_scale"])
@pytest.mark.parametrize("D", TILES)
def test_results_agree_where_it_is_chosen(D: int, inputs: str) -> None:
    op = ops.get("attention")
    triton = next(each for each in builtin.implementations("attention") if each.name == "triton")
    case = op.case((4, 20, 5, 500, 333, D), "bfloat16", causal=False, inputs=inputs)
    problem = Problem(case, 0, torch.device("cuda"))
    if torch.cuda.get_device_capability()[0] != 9:
        pytest.skip("needs Hopper")
    assert covers(*problem.draws[0], causal=False)
    result = check(triton.function, triton.adapter, problem, claims_determinism=True)
    assert result.agrees, result.reason
