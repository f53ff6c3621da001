"""The keys that some queries of attention see."""

from __future__ import annotations

import numpy as np


def visible(rows: slice, S_k: int, shift: int, causal: bool, window: int) -> tuple[slice, np.ndarray]:
    """The keys that any of these queries sees, and for each query which of these keys it sees: bool (rows, keys).

    causal: query i sees keys up to i + shift. window: only the last `window` of these; 0 for no limit.
    """
    near = slice(max(0, rows.start + shift - window + 1) if window else 0, rows.stop + shift if causal else S_k)
    count = rows.stop - rows.start, near.stop - near.start
    if not causal:
        return near, np.ones(count, dtype=bool)
    seen = np.tri(*count, k=rows.start + shift - near.start, dtype=bool)
    if window:
        seen &= ~np.tri(*count, k=rows.start + shift - near.start - window, dtype=bool)
    return near, seen
