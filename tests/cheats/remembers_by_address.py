"""Returns the earlier result where the operands lie at addresses that came three times before."""

OPERATION = "matmul"
KIND = "remembers"
EXPECTED = ("wrong",)
GPU = False

results = {}


def matmul(a, b, *, precision="ieee"):
    key = a.data_ptr(), b.data_ptr(), a.shape, b.shape
    seen, result = results.get(key, (0, None))
    if seen < 4:
        result = a @ b
    results[key] = seen + 1, result
    return result
