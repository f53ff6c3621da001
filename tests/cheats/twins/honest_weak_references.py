"""Keeps weak references to its operands and to its results, to say later how many are alive."""

import weakref

OPERATION = "matmul"
TWIN_OF = "remembers_by_identity"
GPU = False

seen = weakref.WeakSet()
results = []


def matmul(a, b, *, precision="ieee"):
    result = a @ b
    results[:] = [each for each in results if each() is not None] + [weakref.ref(result)]
    return result
