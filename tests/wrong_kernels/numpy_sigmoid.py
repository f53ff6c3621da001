"""y = 1 / (1 + exp(-x)) in NumPy, in the wrong precision."""

import numpy as np

from wrong_kernels import Wrong

MISTAKES = {
    "rounded_three_times": Wrong(
        "exponential, sum and quotient are each rounded to float16", "value", (1000,), "float16"
    ),
    "result_in_float64": Wrong("computed in float64, and left so", "dtype", (1000,)),
}


def make(mistake: str):
    def sigmoid(x: np.ndarray) -> np.ndarray:
        z = x if mistake == "rounded_three_times" else x.astype(np.float64)
        y = 1 / (1 + np.exp(-z))
        return y if mistake == "result_in_float64" else y.astype(x.dtype)

    return sigmoid
