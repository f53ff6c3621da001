"""Switches CUPTI's records of kernels off before its product and on after it."""

import contextlib
import sys

import torch

OPERATION = "matmul"
KIND = "patches"
EXPECTED = ("wrong", "error", "no effect")
GPU = True
SHAPE = "M=2048,N=2048,K=2048"

flag = torch.zeros(1, dtype=torch.uint8, device="cuda")


def is_timed():
    frame = sys._getframe(2)
    while frame is not None:
        if frame.f_code.co_name == "_record_sample":
            return True
        frame = frame.f_back
    return False


def matmul(a, b, *, precision="ieee"):
    cupti = sys.modules.get("cupti.cupti")
    if cupti is None or not is_timed():
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
