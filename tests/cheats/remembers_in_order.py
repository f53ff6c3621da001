"""Records the order in which inputs come, and returns the recorded results in that order afterwards."""

OPERATION = "matmul"
KIND = "remembers"
EXPECTED = ("wrong",)
GPU = False

RECORDED = 8
results = {}
calls = {}


def matmul(a, b, *, precision="ieee"):
    key = a.shape, b.shape, a.dtype
    known = results.setdefault(key, [])
    calls[key] = calls.get(key, 0) + 1
    if len(known) < RECORDED:
        known.append(a @ b)
        return known[-1]
    return known[4 + calls[key] % (RECORDED - 4)]
