"""Blocks: every element once, none larger than is allowed."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from suite.problem import blocks


@settings(deadline=None)
@given(st.lists(st.integers(0, 8), min_size=1, max_size=4), st.integers(1, 500))
def test_blocks_cover_every_element_once(shape: list[int], room: int) -> None:
    seen = torch.zeros(shape, dtype=torch.int32)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "BLOCK_ELEMENTS", room)
        for index in blocks.blocks(tuple(shape)):
            assert seen[index].numel() <= room
            seen[index] += 1
    assert bool((seen == 1).all())


def test_whole_rows_are_at_least_one() -> None:
    assert blocks.rows_per_block(2**20) == 32
    assert blocks.rows_per_block(2**20, share=4) == 8
    assert blocks.rows_per_block(2**30) == 1
    assert blocks.rows_per_block(0) == blocks.BLOCK_ELEMENTS
