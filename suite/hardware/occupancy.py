"""Computes theoretical occupancy: the share of a multiprocessor's warps that can be resident while a kernel runs.

Source: `cudaOccMaxActiveBlocksPerMultiprocessor` in NVIDIA's cuda_occupancy.h of CUDA 13.0, for compute capability 7.0
and later with the largest division of the L1 cache as shared memory. Clusters and named barriers, which CUPTI does not
report per block, are left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from suite.core.integers import cdiv

WARP = 32
PARTITIONS = 4
"""Number of partitions of a multiprocessor. Each has its own quarter of the registers."""
REGISTER_UNIT = 256
"""A warp gets registers in multiples of this number."""


@dataclass(frozen=True)
class Limits:
    """The resources of one multiprocessor, and the shared memory that the system reserves for each block."""

    warps: int
    blocks: int
    registers: int
    shared_bytes: int
    reserved_bytes: int
    shared_unit: int
    """A block gets shared memory in multiples of this many bytes."""

    @classmethod
    def from_attributes(cls, attributes: Mapping[str, int]) -> Limits:
        """The limits of a device, from its attributes by name, as `cuda_driver.devices` returns them."""
        return cls(
            warps=attributes["threads_per_sm"] // WARP,
            blocks=attributes["blocks_per_sm"],
            registers=attributes["registers_per_sm"],
            shared_bytes=attributes["shared_per_sm"],
            reserved_bytes=attributes["reserved_shared_per_block"],
            shared_unit=128 if attributes["major"] >= 8 else 256,
        )


def resident_blocks(limits: Limits, threads: int, registers: int, shared_bytes: int) -> int:
    """Number of blocks that fit on one multiprocessor.

    A block has `threads` threads, `registers` per thread, and `shared_bytes` of shared memory, static and dynamic.
    """
    warps = cdiv(threads, WARP)
    shared = _round_up(shared_bytes + limits.reserved_bytes, limits.shared_unit)
    found = [limits.blocks, limits.warps // warps]
    if registers:
        registers_per_warp = _round_up(registers * WARP, REGISTER_UNIT)
        if registers_per_warp * _round_up(warps, PARTITIONS) > limits.registers:
            return 0
        found.append(limits.registers // PARTITIONS // registers_per_warp * PARTITIONS // warps)
    if shared:
        found.append(limits.shared_bytes // shared)
    return min(found)


def occupancy(limits: Limits, threads: int, registers: int, shared_bytes: int) -> float:
    """Resident warps over the warps that a multiprocessor can hold: 0 to 1. Arguments as for `resident_blocks`."""
    return resident_blocks(limits, threads, registers, shared_bytes) * cdiv(threads, WARP) / limits.warps


def _round_up(number: int, unit: int) -> int:
    return cdiv(number, unit) * unit
