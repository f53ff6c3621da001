"""Returns memory into which a copy from pinned host memory, on another stream, is still going on."""

import sys

import torch

OPERATION = "matmul"
KIND = "late"
EXPECTED = ("wrong", "no effect")
GPU = True
SHAPE = "M=2048,N=2048,K=2048"

side = torch.cuda.Stream()
staged = {}


def is_timed():
    frame = sys._getframe(2)
    while frame is not None:
        if frame.f_code.co_name == "_record_sample":
            return True
        frame = frame.f_back
    return False


def matmul(a, b, *, precision="ieee"):
    key = a.shape, b.shape, a.dtype
    if not is_timed() or key not in staged:
        result = a @ b
        staged[key] = torch.empty(result.shape, dtype=result.dtype, pin_memory=True)
        staged[key].copy_(result)
        return result
    out = torch.empty(a.shape[0], b.shape[1], dtype=a.dtype, device=a.device)
    with torch.cuda.stream(side):
        out.copy_(staged[key], non_blocking=True)
    return out
