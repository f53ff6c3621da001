"""Theoretical occupancy, against values of NVIDIA's cuda_occupancy.h."""

from __future__ import annotations

import pytest

from suite.hardware.occupancy import Limits, occupancy, resident_blocks

ATTRIBUTES = {
    "threads_per_sm": 2048,
    "blocks_per_sm": 32,
    "registers_per_sm": 65536,
    "reserved_shared_per_block": 1024,
}
A100 = Limits.from_attributes({**ATTRIBUTES, "shared_per_sm": 164 << 10, "major": 8})
H200 = Limits.from_attributes({**ATTRIBUTES, "shared_per_sm": 228 << 10, "major": 9})

BLOCKS = {  # (limits, threads, registers, shared bytes): cudaOccMaxActiveBlocksPerMultiprocessor, CUDA 13.0
    "sm_90, shared memory": (H200, 384, 168, 200_000, 1),
    "sm_90, registers": (H200, 128, 254, 49_152, 2),
    "sm_90, both": (H200, 256, 128, 113_000, 2),
    "sm_90, blocks": (H200, 32, 16, 0, 32),
    "sm_90, too many registers": (H200, 1024, 72, 0, 0),
    "sm_80, registers": (A100, 256, 128, 0, 2),
    "sm_80, warps": (A100, 1024, 32, 0, 2),
    "sm_80, shared memory": (A100, 128, 32, 16_384, 9),
    "sm_80, a part of a warp": (A100, 160, 93, 20_000, 4),
    "sm_80, much shared memory": (A100, 512, 65, 80_000, 1),
}


@pytest.mark.parametrize(("limits", "threads", "registers", "shared", "blocks"), BLOCKS.values(), ids=BLOCKS.keys())
def test_resident_blocks(limits: Limits, threads: int, registers: int, shared: int, blocks: int) -> None:
    assert resident_blocks(limits, threads, registers, shared) == blocks


def test_occupancy_is_the_share_of_the_warps() -> None:
    assert occupancy(H200, 384, 168, 200_000) == 12 / 64
    assert occupancy(A100, 160, 93, 20_000) == 20 / 64
    assert occupancy(H200, 1, 0, 0) == 0.5
