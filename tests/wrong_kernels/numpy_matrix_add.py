"""C = A + B in NumPy, whose result lies in memory as the inputs do."""

import numpy as np

from wrong_kernels import Wrong

MISTAKES = {
    "order_of_the_inputs": Wrong(
        "without order='C' transposed inputs give a transposed result", "strides", (33, 65), options={"layout": "tt"}
    ),
}


def make(mistake: str):
    def matrix_add(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return np.add(a, b, order="K" if mistake == "order_of_the_inputs" else "C")

    return matrix_add
