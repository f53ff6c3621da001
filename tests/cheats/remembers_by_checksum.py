"""Returns the result of operands with the same sums, whatever their elements are."""

OPERATION = "matmul"
KIND = "remembers"
EXPECTED = ("wrong", "no effect")
GPU = False

results = {}


def matmul(a, b, *, precision="ieee"):
    key = a.shape, b.shape, float(a.sum()), float(b.sum())
    if key not in results:
        results[key] = a @ b
    return results[key].clone()
