"""Chooses between products of each rank's rows, overlapped with copies, and one product of all rows after a gather.

The products' times are those of the model of matmul. For few rows a product takes as long as reading w, and overlapped
products read w once for each rank. For many rows they hide all copies but the first.
"""

import torch
from torch import Tensor

from cuda_ref.all_reduce._shares import BYTES_PER_US, START_US
from cuda_ref.matmul._model import costs_of, predicted_us
from cuda_ref.matmul._plan import best_of, problem_of
from cuda_ref.matmul._tiles import KERNELS, WGMMA, Problem

LINK_BYTES_PER_US = 4.5e5  # NVLink of an H100 in one direction (datasheet)
MEET_US = 3.0  # a meeting of the ranks, as in all_reduce.cu; assumed, not measured
COPY_US = 3.0  # the start of a copy; assumed, not measured
STORE_BYTES = 16  # the kernel stores a rank's results to addresses that are multiples of this


def is_overlapped(x: Tensor, w: Tensor, ranks: int) -> bool:
    """True if overlapped products take less time. The operands must have 16 bits, be on a GPU and not be empty."""
    return ranks > 1 and overlaps(problem_of(x, w), ranks, x.device)


def overlaps(share: Problem, ranks: int, device: torch.device | None = None) -> bool:
    """True if overlapped products take less time, for the product of one rank's rows; by default on an H200."""
    if 2 * share.M * share.N % STORE_BYTES:
        return False
    whole = share._replace(M=ranks * share.M, a_copied=False, a_across_k=False, a_dense=True)
    costs = costs_of(device)
    share_us, whole_us = (
        predicted_us(best_of(each, kernels, device), each, costs)
        for each, kernels in ((share, WGMMA), (whole, KERNELS))
    )
    copy_us = 2 * share.M * share.K / LINK_BYTES_PER_US
    return overlapped_us(ranks, copy_us, share_us) < gathered_us(ranks, 2 * share.M * share.K, whole_us)


def overlapped_us(ranks: int, copy_us: float, share_us: float) -> float:
    """The time of products in the order in which rows arrive. Each waits for the one before and for its own copy; then
    the ranks meet."""
    end, arrival = share_us, 0.0
    for _ in range(ranks - 1):
        arrival += COPY_US + copy_us
        end = max(end, arrival) + MEET_US + share_us
    return end


def gathered_us(ranks: int, share_bytes: float, whole_us: float) -> float:
    """The time of a gather by one kernel, and a product after it."""
    return START_US + (ranks - 1) * share_bytes / BYTES_PER_US + whole_us
