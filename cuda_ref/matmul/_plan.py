"""The plan of a matmul in 16 bits on Hopper with the least predicted time."""

from functools import lru_cache

import torch
from torch import Tensor

from cuda_ref.hopper.layouts import find_tma_layout
from cuda_ref.hopper.pitched import LINE, pitch
from cuda_ref.matmul._model import costs_of, predicted_us
from cuda_ref.matmul._tiles import KERNELS, TILES, Plan, Problem, Tile, candidates, cdiv


@lru_cache(maxsize=4096)
def best_of(x: Problem, kernels: tuple[str, ...], device: torch.device | None = None) -> Plan:
    """The plan of these kernels with the least predicted time on a device; by default an H200."""
    parts = device is None or has_clusters(device)
    plans = [each for each in candidates(x) if each.kernel in kernels and (parts or each.parts == 1)]
    costs = costs_of(device)
    return min(plans, key=lambda each: predicted_us(each, x, costs))


def best_plan(a: Tensor, b: Tensor, kernels: tuple[str, ...] = KERNELS) -> Plan:
    """The plan for two operands that are not empty. On a CPU: the first of these kernels, with its first tile."""
    return best_of(problem_of(a, b), kernels, a.device) if a.is_cuda else Plan(kernels[0], 0, 1)


@lru_cache
def has_clusters(device: torch.device) -> bool:
    return torch.cuda.get_device_capability(device) >= (9, 0)


@lru_cache
def multiprocessors(device: torch.device) -> int:
    return torch.cuda.get_device_properties(device).multi_processor_count


def one_of_two_tiles(M: int, N: int, a: Tensor) -> Plan:
    """The smallest or the largest tile of wgmma, whichever takes less time by its number of waves."""
    small, large = TILES["wgmma"][:2]
    processors = multiprocessors(a.device) if a.is_cuda else 1

    def waves(tile: Tile) -> int:
        return cdiv(cdiv(M, tile.M * tile.cluster) * cdiv(N, tile.N), max(1, processors // tile.cluster))

    # A wave of the large tile has the work of four waves of the small one and takes as long as 16/7 of them.
    return Plan("wgmma", 1 if 16 * waves(large) <= 7 * waves(small) else 0, 1)


def problem_of(a: Tensor, b: Tensor) -> Problem:
    """All that the choice of a plan for two operands in 16 bits depends on."""
    (M, K), N = a.shape, b.shape[1]
    a_layout, b_layout = find_tma_layout(a, 1), find_tma_layout(b, 0)
    across_k, along_k = a_layout is not None and a_layout[0], b_layout is not None and not b_layout[0] and N > 1
    return Problem(
        M, N, K, a_layout is None, b_layout is None, multiprocessors(a.device), across_k,
        _straddles(a, a_layout), _straddles(b, b_layout), a.is_contiguous() and a.data_ptr() % 16 == 0, along_k,
    )  # fmt: skip


def _straddles(x: Tensor, layout: tuple[bool, int] | None) -> bool:
    """True if rows of an operand, or of its copy for TMA, begin within lines of the L2 cache."""
    size = x.element_size()
    if layout is None:
        columns = x.shape[1] if x.stride(1) <= x.stride(0) else x.shape[0]
        return pitch(columns, size) * size % LINE != 0
    return layout[1] * size % LINE != 0 or x.data_ptr() % LINE != 0
