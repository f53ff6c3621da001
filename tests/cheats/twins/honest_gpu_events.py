"""Measures itself by CUDA events, which it leaves as they are."""

import torch

OPERATION = "matmul"
TWIN_OF = "gpu_patches_events"
GPU = True

events = []


def matmul(a, b, *, precision="ieee"):
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    result = a @ b
    end.record()
    events[:] = [(begin, end)]
    return result
