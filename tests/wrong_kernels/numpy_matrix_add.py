"""C = A + B in NumPy, whose result is a view."""

import numpy as np

from wrong_kernels import Wrong

MISTAKES = {
    "every_second_column": Wrong("the result is a view of every second column", "strides", (33, 65)),
}


def make(mistake: str):
    def matrix_add(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        c = np.empty((a.shape[0], 2 * a.shape[1]), a.dtype)[:, ::2] if mistake else np.empty_like(a, order="C")
        return np.add(a, b, out=c)

    return matrix_add
