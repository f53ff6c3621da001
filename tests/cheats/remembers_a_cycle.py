"""Keeps the results of as many sets of inputs as come, by the corner of each operand."""

OPERATION = "matmul"
KIND = "remembers"
EXPECTED = ("wrong", "no effect")
GPU = False

results = {}


def matmul(a, b, *, precision="ieee"):
    key = a.shape, b.shape, a.flatten()[:1].tolist()[0], b.flatten()[-1:].tolist()[0]
    if key not in results:
        results[key] = a @ b
    return results[key].clone()
