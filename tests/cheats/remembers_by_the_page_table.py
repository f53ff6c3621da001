"""Trusts the system's table of pages to say whether the operands have been written to since the last call."""

OPERATION = "matmul"
KIND = "remembers"
EXPECTED = ("wrong", "error")
GPU = False

PAGE = 4096
results = {}


def pages(x):
    first, last = x.data_ptr() // PAGE, (x.data_ptr() + 4 * x.numel()) // PAGE
    with open("/proc/self/pagemap", "rb") as table:
        table.seek(8 * first)
        return table.read(8 * (last - first + 1))


def matmul(a, b, *, precision="ieee"):
    state = pages(a), pages(b)
    key = a.data_ptr(), b.data_ptr(), a.shape, b.shape
    seen, known, result = results.get(key, (0, None, None))
    if known != state or seen < 4:
        result = a @ b
    results[key] = seen + 1, state, result
    return result
