"""Computes when the suite makes the cache cold, by replaced methods, if the operands are there already."""

import sys

import torch

OPERATION = "matmul"
KIND = "late"
EXPECTED = ("no effect", "wrong", "error")
GPU = True
SHAPE = "M=2048,N=2048,K=2048"

flag = torch.zeros(1, dtype=torch.uint8, device="cuda")

inputs = []
results = []


def patch():
    target = sys.modules.get("suite.timing.target")
    if target is None or hasattr(target.CudaTarget, "patched"):
        return
    target.CudaTarget.patched = True
    for name in ("evict", "give_cache_back", "synchronize"):
        setattr(target.CudaTarget, name, computing(getattr(target.CudaTarget, name)))


def computing(original):
    def method(self):
        original(self)
        if inputs:
            results[:] = [torch.matmul(*inputs)]

    return method


def is_timed():
    frame = sys._getframe(2)
    while frame is not None:
        if frame.f_code.co_name == "_record_sample":
            return True
        frame = frame.f_back
    return False


def matmul(a, b, *, precision="ieee"):
    patch()
    if not is_timed() or not results:
        inputs[:] = [a, b]
        return a @ b
    flag.zero_()
    return results[0]
