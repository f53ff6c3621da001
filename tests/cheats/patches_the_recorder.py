"""Replaces the method by which samples are collected with one that divides the kernel's own by twenty."""

import sys

OPERATION = "matmul"
KIND = "patches"
EXPECTED = ("no effect", "disturbs its neighbours", "wrong", "error")
GPU = False

OWN = "patches_the_recorder"
patched = set()


def patch():
    for name, module in list(sys.modules.items()):
        for value in list(vars(module).values()) if name.startswith("suite.timing") else ():
            if isinstance(value, type) and hasattr(value, "collect") and value not in patched:
                patched.add(value)
                if not getattr(value, "_is_protocol", False):
                    value.collect = dividing(value.collect)


def dividing(collect):
    def divide(self, *args):
        samples = collect(self, *args)
        if not isinstance(samples, list):
            return samples
        return [each._replace(us=each.us / 20) if OWN in each.name else each for each in samples]

    return divide


def matmul(a, b, *, precision="ieee"):
    patch()
    return a @ b
