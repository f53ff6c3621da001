"""The keys that a query of attention does not see: those after its own, and those before its window."""

from __future__ import annotations

import torch


def first_seen(row: int, shift: int, window: int | None) -> int:
    """Return the first key that any query from `row` on sees. shift: the own key of query 0."""
    return 0 if window is None else max(0, row + shift - window + 1)


def hidden(rows: range, keys: range, shift: int, window: int | None, device: torch.device) -> torch.Tensor:
    """Return the mask (rows, keys) of what is not seen: j > i + shift, or j <= i + shift - window."""
    own = torch.arange(rows.start, rows.stop, device=device)[:, None] + shift
    key = torch.arange(keys.start, keys.stop, device=device)
    later = key > own
    return later if window is None else later | (key <= own - window)


def pairs_up_to(queries: int, shift: int) -> int:
    """Return the number of pairs of a query i < queries and a key j with 0 <= j <= i + shift."""
    last = queries + shift
    seeing = min(queries, max(0, last))
    return seeing * (2 * last - seeing + 1) // 2
