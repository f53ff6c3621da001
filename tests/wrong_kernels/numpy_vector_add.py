"""c = a + b in NumPy, block by block, with mistakes in place and tail."""

import numpy as np

from wrong_kernels import Wrong

MISTAKES = {
    "added_into_a": Wrong("np.add(a, b, out=a)", "aliases input", (1000,)),
    "whole_blocks_only": Wrong("the rest after the last whole block is not added", "not finite", (1000,)),
    "reversed_view": Wrong("the result is a view with a negative stride", "strides", (1000,)),
}
BLOCK = 256


def make(mistake: str):
    def vector_add(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        if mistake == "added_into_a":
            return np.add(a, b, out=a)
        if mistake == "reversed_view":
            return (a[::-1] + b[::-1])[::-1]
        c = np.empty_like(a)
        end = a.size - a.size % BLOCK if mistake == "whole_blocks_only" else a.size
        for start in range(0, end, BLOCK):
            block = slice(start, min(start + BLOCK, end))
            np.add(a[block], b[block], out=c[block])
        return c

    return vector_add
