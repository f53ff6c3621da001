"""Returns kept NumPy arrays for operands whose addresses and first elements are known."""

import numpy as np

OPERATION = "matmul"
KIND = "remembers"
EXPECTED = ("wrong", "no effect")
GPU = False

framework = "numpy"
results = {}


def matmul(a, b, *, precision="ieee"):
    key = a.ctypes.data, b.ctypes.data, float(a[0, 0]), float(b[0, 0])
    if key not in results:
        results[key] = np.matmul(a, b)
    return results[key].copy()
