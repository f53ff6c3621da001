"""Trusts torch's version counters to say whether the operands have changed."""

OPERATION = "matmul"
KIND = "remembers"
EXPECTED = ("wrong", "no effect")
GPU = False

results = {}


def matmul(a, b, *, precision="ieee"):
    key = a.data_ptr(), a._version, b.data_ptr(), b._version
    seen, result = results.get(key, (0, None))
    if seen < 4:  # copies through another view of the memory do not count; the check makes those
        result = a @ b
    results[key] = seen + 1, result
    return result
