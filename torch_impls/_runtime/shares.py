"""The rows of a whole sequence that each rank has, if the shares of causal attention are balanced.

This file is the same in cuda_ref/, triton_kernels/, jax_impls/ and torch_impls/. Edit cuda_ref/_runtime/shares.py and
copy it to the others; a test compares them. Therefore it imports no framework.
"""

from __future__ import annotations


def zigzag(rank: int, ranks: int, rows: int) -> tuple[int, int]:
    """The first row, in the whole sequence, of each half of a rank's share of `rows` rows.

    The first rows // 2 rows of all ranks come first, in the ranks' order, then the others in reverse order. All ranks
    then have as many pairs of a query and a visible key. `rank` may be an array of JAX.
    """
    half = rows // 2
    return rank * half, ranks * half + (ranks - 1 - rank) * (rows - half)
