"""C = A B in NumPy, with mistakes in precision, type and the sum of nothing, and in the sums of float8."""

import ml_dtypes
import numpy as np

from wrong_kernels import Wrong

FLOAT8 = ("float8_e4m3fn", "promoted")
MISTAKES = {
    "halves_in_float16": Wrong("two halves of K are rounded before they are added", "value", (32, 32, 256), "float16"),
    "list_result": Wrong("the result is a list of lists", "type", (32, 32, 32)),
    "empty_for_no_terms": Wrong("K = 0 returns an array that nobody filled", "not finite", (5, 7, 0)),
    "never_promoted": Wrong("all sums have 14 bits, not only those of 128 terms", "value", (32, 32, 16384), *FLOAT8),
    "whole_steps_only": Wrong("K is taken to be a multiple of 32", "value", (32, 32, 100), *FLOAT8),
}
STEP, CHAIN = 32, 128


def make(mistake: str):
    def matmul(a: np.ndarray, b: np.ndarray, *scales: np.ndarray, precision: str = "ieee") -> np.ndarray:
        if scales:
            return (float8(a.astype(np.float32), b.astype(np.float32)) * np.prod(scales)).astype(ml_dtypes.bfloat16)
        if mistake == "empty_for_no_terms" and a.shape[1] == 0:
            return np.empty((a.shape[0], b.shape[1]), a.dtype)
        if mistake == "halves_in_float16":
            half = a.shape[1] // 2
            return a[:, :half] @ b[:half] + a[:, half:] @ b[half:]
        c = (a.astype(np.float32) @ b.astype(np.float32)).astype(a.dtype)
        return c.tolist() if mistake == "list_result" else c

    def float8(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        K = a.shape[1] // STEP * STEP if mistake == "whole_steps_only" else a.shape[1]
        total = np.zeros((a.shape[0], b.shape[1]), np.float32)
        acc = np.zeros_like(total)
        for k in range(0, K, STEP):
            if k % CHAIN == 0 and mistake != "never_promoted":
                total += acc
                acc = np.zeros_like(total)
            acc += a[:, k : min(k + STEP, K)] @ b[k : min(k + STEP, K)]
            acc = (acc.view(np.int32) & -(2**10)).view(np.float32)  # to 14 significant bits, towards zero
        return total + acc

    return matmul
