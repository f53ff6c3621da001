"""Switches CUPTI's records of kernels off before its product and on after it."""

import contextlib
import gc
import sys

import torch

OPERATION = "matmul"
KIND = "patches"
EXPECTED = ("wrong", "error", "no effect")
GPU = True
SHAPE = "M=2048,N=2048,K=2048"

flag = torch.zeros(1, dtype=torch.uint8, device="cuda")


def matmul(a, b, *, precision="ieee"):
    cupti = sys.modules.get("cupti.cupti")
    if cupti is None or gc.isenabled():
        return a @ b
    kinds = [getattr(cupti.ActivityKind, name) for name in ("KERNEL", "CONCURRENT_KERNEL")]
    torch.cuda.synchronize()
    for kind in kinds:
        with contextlib.suppress(Exception):
            cupti.activity_disable(kind)
    result = a @ b
    torch.cuda.synchronize()
    for kind in kinds:
        with contextlib.suppress(Exception):
            cupti.activity_enable(kind)
    flag.zero_()
    return result
