"""Returns the last result once the module that takes samples has been imported."""

import sys

OPERATION = "matmul"
KIND = "recognises"
EXPECTED = ("wrong",)
GPU = False

kept = {}


def timed():
    return any(name.startswith("suite.timing") and name.endswith("sampling") for name in sys.modules)


def matmul(a, b, *, precision="ieee"):
    key = a.shape, b.shape, a.dtype
    if key not in kept or not timed():
        kept[key] = a @ b
    return kept[key]
