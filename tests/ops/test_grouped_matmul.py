"""grouped_matmul: sizes of experts, its bound, and kernels that use weights and rows of no other expert."""

from __future__ import annotations

import pytest
import torch
from judging import CPU, called, judge_output

from cuda_ref.grouped_matmul import grouped_matmul as cuda
from cuda_ref.grouped_matmul_grad import grouped_matmul_grad as cuda_grad
from suite import ops
from suite.core.errors import UsageError
from suite.problem import expert_sizes
from torch_impls.grouped_matmul import grouped_matmul as torch_line
from torch_impls.grouped_matmul.grouped import grouped_matmul as torch_grouped
from torch_impls.grouped_matmul_grad import grouped_matmul_grad as torch_grad
from triton_kernels.grouped_matmul import grouped_matmul as triton
from triton_kernels.grouped_matmul.persistent import grouped_matmul as triton_persistent
from triton_kernels.grouped_matmul_grad import grouped_matmul_grad as triton_grad
from triton_kernels.grouped_matmul_grad.persistent import grouped_matmul_grad as triton_grad_persistent

OP = ops.get("grouped_matmul")
SHAPE = (200, 5, 40, 24)


@pytest.mark.parametrize("kind", expert_sizes.KINDS)
@pytest.mark.parametrize(("rows", "experts"), [(0, 3), (1, 1), (7, 2), (300, 3), (300, 4), (1024, 67)])
def test_sizes_add_up_to_the_rows(kind: str, rows: int, experts: int) -> None:
    case = OP.case((rows, experts, 4, 4), sizes=kind)
    drawn = expert_sizes.draw_sizes(case, torch.Generator().manual_seed(3))
    assert (drawn.dtype, drawn.shape, int(drawn.sum()), int(drawn.min()) >= 0) == (torch.int32, (experts,), rows, True)
    assert int((drawn > 0).sum()) == expert_sizes.used_experts(case)


def test_experts_without_rows_are_first_last_and_between() -> None:
    for experts in (5, 8, 67):
        case = OP.case((300, experts, 4, 4), sizes="empty")
        drawn = expert_sizes.draw_sizes(case, torch.Generator().manual_seed(experts))
        assert drawn[[0, experts // 2, -1]].tolist() == [0, 0, 0]
        assert int(drawn[: experts // 2].sum()) > 0 or experts > 5


def test_weights_of_experts_without_rows_are_no_traffic() -> None:
    one, all_experts = (OP.bytes(OP.case(SHAPE, sizes=sizes)) for sizes in ("one", "uniform"))
    assert all_experts - one == 4 * 40 * 24 * 4


def test_rows_without_an_expert_are_refused() -> None:
    with pytest.raises(UsageError, match="T=3 rows need an expert"):
        OP.parse_shapes("T=3,E=0,K=4,N=4")
    with pytest.raises(ValueError, match="sizes must be int32"):
        torch_line(torch.zeros(3, 4), torch.zeros(2, 4, 5), torch.tensor([1, 2]))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("line", [torch_line, torch_grouped], ids=["loop", "grouped"])
def test_the_bound_tells_more_roundings(line, dtype: str) -> None:
    case = OP.case(SHAPE, dtype, sizes="edges")
    right = line(*OP.make_inputs(case, 0, CPU))
    assert judge_output(OP, case, right).error_ratio < 0.7
    coarse = torch.float16 if dtype == "float32" else torch.float8_e4m3fn
    assert judge_output(OP, case, right.to(coarse).to(right.dtype)).error_ratio > 1.2


@pytest.mark.parametrize("line", [triton, triton_persistent, cuda], ids=["triton", "persistent", "cuda"])
def test_sizes_may_change_between_calls(line, device: str) -> None:
    """A launcher that keeps its plans must not keep the sizes."""
    x, weight, _ = OP.make_inputs(OP.case(SHAPE, "bfloat16"), 0, CPU)
    for rows in ([200, 0, 0, 0, 0], [0, 0, 0, 0, 200], [1, 64, 0, 135, 0], [0, 0, 200, 0, 0]):
        sizes = torch.tensor(rows, dtype=torch.int32)
        found = called(line, device, x, weight, sizes)
        torch.testing.assert_close(found, torch_line(x, weight, sizes), rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("line", [triton_grad, cuda_grad], ids=["triton", "cuda"])
def test_the_gradient_is_that_of_autograd_and_zero_without_rows(line, device: str) -> None:
    x, weight, sizes = OP.make_inputs(OP.case(SHAPE, sizes="empty"), 0, CPU)
    weight.requires_grad_()
    dy = torch.randn(SHAPE[0], SHAPE[3], generator=torch.Generator().manual_seed(1))
    (expected,) = torch.autograd.grad(torch_line(x, weight, sizes), weight, dy)
    found = called(line, device, x, dy, sizes)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    assert not found[sizes == 0].any()


def test_the_last_rows_of_an_expert_do_not_meet_those_of_the_next(device: str) -> None:
    op = ops.get("grouped_matmul_grad")
    case = op.case((200, 5, 136, 72), "bfloat16", sizes="edges", inputs="nan")
    assert judge_output(op, case, called(triton_grad_persistent, device, *op.make_inputs(case, 0, CPU))).agrees


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_bound_of_the_gradient_tells_more_roundings(dtype: str) -> None:
    op = ops.get("grouped_matmul_grad")
    case = op.case(SHAPE, dtype, sizes="skewed")
    right = torch_grad(*op.make_inputs(case, 0, CPU))
    assert judge_output(op, case, right).error_ratio < 0.7
    coarse = torch.float16 if dtype == "float32" else torch.float8_e4m3fn
    assert judge_output(op, case, right.to(coarse).to(right.dtype)).error_ratio > 1.2
