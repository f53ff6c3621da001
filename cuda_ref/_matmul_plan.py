"""Plans of a matmul in 16 bits on Hopper: which kernel, which tile, and in how many parts k is divided."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from cuda_ref._arguments import find_tma_layout


@dataclass(frozen=True)
class Tile:
    """A tile of the output, `steps` of k at a time."""

    M: int
    N: int
    K: int
    cluster: int = 1
    """Blocks below each other that share their loads."""


@dataclass(frozen=True)
class Plan:
    """How a product is computed."""

    kernel: str
    """"wgmma" (TMA, persistent blocks; parts in memory), "mma" (rows at any address; parts within a cluster), or
    "skinny" (few rows, TMA; divides k itself)."""
    tile: int
    """Index in TILES[kernel], and the number in the .cu."""
    parts: int


TILES = {
    "mma": (
        Tile(16, 64, 128),
        Tile(64, 16, 128),
        Tile(32, 32, 128),
        Tile(64, 64, 64),
        Tile(128, 64, 64),
        Tile(128, 128, 64),
        Tile(16, 128, 64),
        Tile(32, 128, 64),
        Tile(128, 32, 64),
    ),
    "wgmma": (Tile(64, 128, 64), Tile(128, 256, 64, 2), Tile(128, 128, 64), Tile(128, 192, 64, 2)),
}
PARTS = {"mma": (1, 2, 4, 8, 16), "wgmma": (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32)}


SKINNY, SKINNY_M = Plan("skinny", 0, 1), 64


def count(size: int, by: int) -> int:
    return -(-size // by)


def tiles_of(tile: Tile, M: int, N: int) -> int:
    """Blocks of one part."""
    return count(M, tile.M * tile.cluster) * tile.cluster * count(N, tile.N)


@dataclass(frozen=True)
class Problem:
    """What the choice depends on."""

    M: int
    N: int
    K: int
    a_copied: bool
    """Whether TMA cannot read a."""
    b_copied: bool
    multiprocessors: int


def candidates(x: Problem) -> Iterator[Plan]:
    """All plans that may be the best one: parts that the device has blocks for, with at least one step of k each."""
    for kernel, tiles in TILES.items():
        for index, tile in enumerate(tiles):
            blocks, steps = tiles_of(tile, x.M, x.N), count(x.K, tile.K)
            for parts in PARTS[kernel]:
                if parts == 1 or (parts <= steps and blocks * parts < 3 * x.multiprocessors):
                    yield Plan(kernel, index, parts)
    if x.M <= SKINNY_M and not x.a_copied and not x.b_copied:
        yield SKINNY


def predicted_us(plan: Plan, x: Problem) -> float:
    """The time of a plan."""
    if plan == SKINNY:
        return 3.0 + 2.0 * (x.M * x.K + x.K * x.N + x.M * x.N) / 3.8e6
    tile, sms = TILES[plan.kernel][plan.tile], x.multiprocessors
    blocks, steps = tiles_of(tile, x.M, x.N), count(count(x.K, tile.K), plan.parts)
    bytes_moved = 2.0 * (x.M * x.K + x.K * x.N + x.M * x.N)
    waves = count(blocks * plan.parts, sms)
    if plan.kernel == "mma":
        step_us = tile.M * tile.N * tile.K / 1.0e6 + 0.15
        return 2.0 + 0.6 * (plan.parts > 1) + max(waves * (0.8 + steps * step_us), bytes_moved / 3.6e6)
    step_us = tile.M * tile.N * tile.K / 3.0e6
    us = 3.0 + waves * (1.0 + steps * step_us)
    if plan.parts > 1:
        us += 2.0 + 4.0 * x.M * x.N * plan.parts / 3.0e6
    if x.a_copied or x.b_copied:
        us += 2.0 + 4.0 * (x.a_copied * x.M * x.K + x.b_copied * x.K * x.N) / 3.5e6
    return max(us, bytes_moved / 3.8e6)


@lru_cache(maxsize=4096)
def best_of(x: Problem, kernels: tuple[str, ...]) -> Plan:
    """The plan of these kernels that is predicted to be the fastest."""
    plans = [each for each in candidates(x) if each.kernel in kernels]
    return min(plans, key=lambda each: predicted_us(each, x))


def best_plan(a: Tensor, b: Tensor, kernels: tuple[str, ...] = ("wgmma", "mma", "skinny")) -> Plan:
    """The plan for two operands."""
    if not a.is_cuda:
        return Plan("mma", 2, 1)
    return best_of(problem_of(a, b), kernels)


def problem_of(a: Tensor, b: Tensor) -> Problem:
    (M, K), N = a.shape, b.shape[1]
    copied = find_tma_layout(a, 1) is None, find_tma_layout(b, 0) is None
    return Problem(M, N, K, *copied, multiprocessors(a.device))


@lru_cache
def multiprocessors(device: torch.device) -> int:
    return torch.cuda.get_device_properties(device).multi_processor_count
