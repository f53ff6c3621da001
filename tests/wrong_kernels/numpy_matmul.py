"""C = A B in NumPy, with mistakes in precision, type and the sum of nothing."""

import numpy as np

from wrong_kernels import Wrong

MISTAKES = {
    "halves_in_float16": Wrong("two halves of K are rounded before they are added", "value", (32, 32, 256), "float16"),
    "list_result": Wrong("the result is a list of lists", "type", (32, 32, 32)),
    "empty_for_no_terms": Wrong("K = 0 returns an array that nobody filled", "not finite", (5, 7, 0)),
}


def make(mistake: str):
    def matmul(a: np.ndarray, b: np.ndarray, *, precision: str = "ieee") -> np.ndarray:
        if mistake == "empty_for_no_terms" and a.shape[1] == 0:
            return np.empty((a.shape[0], b.shape[1]), a.dtype)
        if mistake == "halves_in_float16":
            half = a.shape[1] // 2
            return a[:, :half] @ b[:half] + a[:, half:] @ b[half:]
        c = (a.astype(np.float32) @ b.astype(np.float32)).astype(a.dtype)
        return c.tolist() if mistake == "list_result" else c

    return matmul
