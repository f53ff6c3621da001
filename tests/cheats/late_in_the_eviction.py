"""Computes while the cache is evicted, when the inputs of the sample are there already, by a replaced method."""

import sys

OPERATION = "matmul"
KIND = "late"
EXPECTED = ("no effect",)
GPU = False

inputs = []
results = []


def patch():
    target = sys.modules.get("suite.timing.target")
    if target is None or hasattr(target.CpuTarget, "original"):
        return
    target.CpuTarget.original = target.CpuTarget.evict

    def evict(self):
        self.original()
        if inputs:
            results[:] = [inputs[0] @ inputs[1]]

    target.CpuTarget.evict = evict


def matmul(a, b, *, precision="ieee"):
    patch()
    inputs[:] = [a, b]
    return results.pop() if results else a @ b
