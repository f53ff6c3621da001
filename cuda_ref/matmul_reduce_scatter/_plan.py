"""Chooses between products for each rank, overlapped with copies, and one product of all rows before the sum.

The products' times are those of the model of matmul. For few rows a product takes as long as reading w, and overlapped
products read w once for each rank.
"""

import torch
from torch import Tensor

from cuda_ref.all_gather_matmul._plan import COPY_US, LINK_BYTES_PER_US, MEET_US
from cuda_ref.all_reduce._shares import BYTES_PER_US, PACK, START_US
from cuda_ref.matmul._model import costs_of, predicted_us
from cuda_ref.matmul._plan import best_of, multiprocessors
from cuda_ref.matmul._tiles import WGMMA, Problem


def is_overlapped(x: Tensor, w: Tensor, ranks: int) -> bool:
    """True if overlapped products take less time. The operands must have 16 bits, be on a GPU and not be empty.

    Layouts are left out: they may differ from rank to rank, and ranks that choose differently wait for each other.
    """
    share = Problem(x.shape[0] // ranks, w.shape[1], x.shape[1], False, False, multiprocessors(x.device))
    return overlaps(share, ranks, x.device)


def overlaps(share: Problem, ranks: int, device: torch.device | None = None) -> bool:
    """True if overlapped products take less time, for the product of one rank's rows; by default on an H200."""
    if 2 * share.M * share.N % PACK:
        return True
    whole = share._replace(M=ranks * share.M)
    costs = costs_of(device)
    share_us, whole_us = (predicted_us(best_of(each, WGMMA, device), each, costs) for each in (share, whole))
    share_bytes = 2 * share.M * share.N
    overlapped = overlapped_us(ranks, share_bytes / LINK_BYTES_PER_US, share_us)
    return overlapped < whole_first_us(ranks, share_bytes, whole_us)


def overlapped_us(ranks: int, copy_us: float, share_us: float) -> float:
    """The time of a product for each rank, this rank's last, and of a kernel that adds. Copies wait for each other."""
    copied = 0.0
    for done in range(1, ranks):
        copied = max(copied, done * share_us) + COPY_US + copy_us
    return max(copied + MEET_US, ranks * share_us) + COPY_US


def whole_first_us(ranks: int, share_bytes: float, whole_us: float) -> float:
    """The time of one product, and of a kernel that sends the rows of the others and adds this rank's."""
    return whole_us + START_US + (ranks - 1) * share_bytes / BYTES_PER_US
