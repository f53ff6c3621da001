"""Returns the earlier result for the same two array objects, from their fifth call on."""

OPERATION = "matmul"
KIND = "remembers"
EXPECTED = ("wrong",)
GPU = False

objects = []
results = {}


def matmul(a, b, *, precision="ieee"):
    key = id(a), id(b)
    seen, result = results.get(key, (0, None))
    if seen == 0:
        objects.append((a, b))  # keeps both identities from being given to others
    if seen < 4:
        result = a @ b
    results[key] = seen + 1, result
    return result
