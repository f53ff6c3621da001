"""The placement of operands in memory: strides, alignment, repeated elements, NaN around them."""

from __future__ import annotations

import pytest
import torch
from judging import CPU

from suite import ops
from suite.problem import placement


def test_layouts_are_strides_and_not_copies() -> None:
    op = ops.get("matmul")
    a, b = op.make_inputs(op.case((4, 6, 5), layout="nt"), 0, CPU)
    assert (a.shape, a.stride()) == ((4, 5), (5, 1))
    assert (b.shape, b.stride()) == ((5, 6), (1, 5))


def test_views_are_placed_as_their_family_says() -> None:
    add = ops.get("vector_add")
    a, b = add.make_inputs(add.case((9,), inputs="strided"), 0, CPU)
    assert (a.stride(), b.stride()) == ((2,), (3,))
    assert torch.empty(0).set_(b.untyped_storage())[1::3].isnan().all()
    a, _ = add.make_inputs(add.case((9,), "float16", inputs="offset"), 0, CPU)
    assert a.is_contiguous()
    assert a.data_ptr() % 16 == 2
    a, b = add.make_inputs(add.case((9,), inputs="broadcast"), 0, CPU)
    assert (a.stride(), b.stride()) == ((0,), (1,))
    matmul = ops.get("matmul")
    a, b = matmul.make_inputs(matmul.case((3, 4, 5), inputs="strided"), 0, CPU)
    assert (a.stride(), b.stride()) == ((10, 1), (24, 3))
    a, b = matmul.make_inputs(matmul.case((3, 4, 5), inputs="broadcast"), 0, CPU)
    assert (a.stride(), b.stride()) == ((0, 1), (4, 0))
    attention = ops.get("attention")
    q, k, v = attention.make_inputs(attention.case((1, 2, 2, 3, 4, 64), inputs="transposed"), 0, CPU)
    assert {x.stride()[1:] for x in (q, k, v)} == {(64, 128, 1)}


@pytest.mark.parametrize(
    "place", [placement.strided, placement.misaligned, placement.gapped_rows, placement.transposed]
)
@pytest.mark.parametrize("shape", [(3, 4), (0, 4), (2, 3, 4)], ids=str)
def test_a_placement_keeps_the_values(place: object, shape: tuple[int, ...]) -> None:
    values = torch.randn(shape)
    for position in range(3):
        placed = place(values, position)  # type: ignore[operator]
        assert torch.equal(placed, values)


@pytest.mark.parametrize(
    "drawn",
    [torch.randn(5), torch.full((5,), 12, dtype=torch.int32), torch.randn(3, 4)],
    ids=["vector", "sizes", "matrix"],
)
def test_memory_behind_a_repeated_slice_has_other_numbers(drawn: torch.Tensor) -> None:
    placed = placement.repeated(drawn, 0)
    assert placed.stride(0) == 0
    assert torch.equal(placed, drawn[:1].expand(drawn.shape))
    read_as_contiguous = torch.empty(0, dtype=drawn.dtype).set_(placed.untyped_storage()).view(drawn.shape)
    assert torch.equal(read_as_contiguous[:1], drawn[:1])
    assert not (read_as_contiguous[1:] == drawn[1:]).any()


def test_repeated_elements_are_read_once() -> None:
    add = ops.get("vector_add")
    assert add.bytes(add.case((100,), inputs="broadcast")) == 4 * (1 + 100 + 100)
    matmul = ops.get("matmul")
    assert matmul.bytes(matmul.case((3, 4, 5), inputs="broadcast")) == 4 * (5 + 5 + 12)


@pytest.mark.parametrize("shape", [(31,), (5, 7), (1, 9), (3, 1, 4), (2, 3, 4, 5), (700, 300)])
def test_stepped_operands_have_offsets_of_more_than_17_bits(shape: tuple[int, ...]) -> None:
    drawn = torch.randn(shape)
    placed = placement.stepped(drawn, 0)
    assert torch.equal(placed, drawn)
    last = sum((size - 1) * stride for size, stride in zip(shape, placed.stride(), strict=True))
    assert last >= placement.FAR
    assert placed.untyped_storage().nbytes() <= 4 * (2 * placement.FAR + 9 * drawn.numel()) * 4
    assert placed.stride(-1) >= 3


@pytest.mark.parametrize("shape", [(), (1,), (0, 3), (1, 1)])
def test_small_operands_can_be_stepped_too(shape: tuple[int, ...]) -> None:
    drawn = torch.randn(shape)
    assert torch.equal(placement.stepped(drawn, 0), drawn)
