"""Returns a copy of an earlier result if thirty-two elements of the operands are the same."""

OPERATION = "matmul"
KIND = "remembers"
EXPECTED = ("wrong", "no effect")
GPU = False

results = {}


def sample(x):
    return tuple(x[:: max(1, x.shape[0] // 4), :: max(1, x.shape[1] // 4)].flatten().tolist())


def matmul(a, b, *, precision="ieee"):
    key = a.shape, b.shape, sample(a), sample(b)
    if key not in results:
        results[key] = a @ b
    return results[key].clone()
