"""grouped_block_scaled_matmul: a truth of blocks that cut experts, its traffic, and sizes that change between calls."""

from __future__ import annotations

import pytest
import torch
from judging import CPU, called

from cuda_ref.grouped_block_scaled_matmul import grouped_block_scaled_matmul as cuda
from suite import ops
from suite.problem import blocks
from torch_impls.block_scaled_matmul import block_scaled_matmul
from torch_impls.grouped_block_scaled_matmul import grouped_block_scaled_matmul as torch_line
from triton_kernels.grouped_block_scaled_matmul import grouped_block_scaled_matmul as triton
from triton_kernels.grouped_block_scaled_matmul.persistent import grouped_block_scaled_matmul as triton_persistent

OP = ops.get("grouped_block_scaled_matmul")
SHAPE = (200, 5, 144, 140)


@pytest.mark.parametrize(("shape", "elements"), [(SHAPE, 37 * 140), ((6, 2, 144, 140), 100)], ids=["rows", "columns"])
def test_the_truth_does_not_depend_on_the_blocks(
    monkeypatch: pytest.MonkeyPatch, shape: tuple[int, ...], elements: int
) -> None:
    case = OP.case(shape, sizes="edges", inputs="uneven")
    inputs = OP.make_inputs(case, 0, CPU)
    (whole,) = OP.truth(inputs, case)
    monkeypatch.setattr(blocks, "BLOCK_ELEMENTS", elements)
    for piece in OP.truth(inputs, case):
        assert piece.value.numel() <= elements
        torch.testing.assert_close(piece.value, whole.value[piece.index], rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(piece.limit, whole.limit[piece.index], rtol=1e-12, atol=1e-12)


def test_one_expert_is_a_block_scaled_matmul() -> None:
    x, scale_x, weight, scale_weight, sizes = OP.make_inputs(OP.case((40, 1, 144, 140)), 0, CPU)
    expected = block_scaled_matmul(x, scale_x, weight[0], scale_weight[0])
    assert torch.equal(torch_line(x, scale_x, weight, scale_weight, sizes), expected)


def test_codes_and_scales_of_experts_without_rows_are_no_traffic() -> None:
    one, all_experts = (OP.bytes(OP.case(SHAPE, sizes=sizes)) for sizes in ("one", "uniform"))
    assert all_experts - one == 4 * (144 * 140 + 4 * 2 * 2)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({2: torch.float16}, "weight must be float8_e4m3fn; got float16"),
        ({3: torch.float64}, "scale_weight must be float32; got float64"),
        ({4: torch.int64}, "sizes must be int32; got int64"),
    ],
    ids=str,
)
def test_other_types_are_refused(change: dict[int, torch.dtype], message: str) -> None:
    inputs = OP.make_inputs(OP.case((8, 2, 16, 8)), 0, CPU)
    with pytest.raises(ValueError, match=message):
        torch_line(*(each.to(change.get(i, each.dtype)) for i, each in enumerate(inputs)))


def test_scales_of_another_shape_are_refused() -> None:
    x, scale_x, weight, scale_weight, sizes = OP.make_inputs(OP.case((8, 2, 144, 140)), 0, CPU)
    with pytest.raises(ValueError, match=r"so scale_weight must be \(2, 2, 2\); got \(2, 1, 2\)"):
        torch_line(x, scale_x, weight, scale_weight[:, :1], sizes)


@pytest.mark.parametrize("line", [triton, triton_persistent, cuda], ids=["triton", "persistent", "cuda"])
def test_sizes_may_change_between_calls(line, device: str) -> None:
    """A launcher that keeps its plans must not keep the sizes."""
    *operands, _ = OP.make_inputs(OP.case((70, 4, 144, 140)), 0, CPU)
    for rows in ([70, 0, 0, 0], [0, 0, 0, 70], [1, 20, 0, 49]):  # the third call repeats the launches of the second
        sizes = torch.tensor(rows, dtype=torch.int32)
        found = called(line, device, *operands, sizes)
        torch.testing.assert_close(found, torch_line(*operands, sizes), rtol=2e-2, atol=0.5)
