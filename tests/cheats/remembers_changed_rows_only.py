"""Computes only the rows of A that differ from the last call's, if B's corner is the same."""

OPERATION = "matmul"
KIND = "remembers"
EXPECTED = ("wrong", "no effect")
GPU = False

last = {}


def matmul(a, b, *, precision="ieee"):
    key = a.shape, b.shape, a.dtype
    corner = b.flatten()[:1].tolist()
    if key not in last or last[key][1] != corner:
        last[key] = a.clone(), corner, a @ b
    old, _, result = last[key]
    changed = (a != old).any(dim=1).nonzero().flatten()
    if len(changed):
        result[changed] = a[changed] @ b
        old.copy_(a)
    return result.clone()
