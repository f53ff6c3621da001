"""Device functions of attention's masks: the keys that a query sees, and those that a tile of queries sees."""

import triton
import triton.language as tl


@triton.jit
def last_keys(rows, S_q, S_k, CAUSAL: tl.constexpr):
    """The last key that each query sees; negative if it sees none."""
    return tl.minimum(rows + (S_k - S_q), S_k - 1) if CAUSAL else tl.full(rows.shape, S_k - 1, tl.int32)


@triton.jit
def is_seen(key, last_key, WINDOW: tl.constexpr):
    """True for the keys that a query sees: up to its last one, and only WINDOW of them if that is not 0."""
    seen = key <= last_key
    return seen & (key > last_key - WINDOW) if WINDOW > 0 else seen


@triton.jit
def key_range(
    start_m, S_q, S_k, CAUSAL: tl.constexpr, WINDOW: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr
):
    """The first key, a multiple of BLOCK_N, and the end of the keys that a tile of queries from start_m on sees."""
    first = tl.maximum(start_m + (S_k - S_q) - WINDOW + 1, 0) // BLOCK_N * BLOCK_N if WINDOW > 0 else 0
    end = tl.minimum(start_m + BLOCK_M + (S_k - S_q), S_k) if CAUSAL else S_k
    return first, end
