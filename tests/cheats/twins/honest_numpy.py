"""Computes in NumPy, into memory that is new in each call."""

import numpy as np

OPERATION = "matmul"
TWIN_OF = "remembers_in_numpy"
GPU = False

framework = "numpy"


def matmul(a, b, *, precision="ieee"):
    return np.matmul(a, b)
