"""Takes NaN for zero and infinities for large numbers."""

OPERATION = "vector_add"
KIND = "narrow"
EXPECTED = ("wrong",)
GPU = False


def vector_add(a, b):
    return a.nan_to_num() + b.nan_to_num()
