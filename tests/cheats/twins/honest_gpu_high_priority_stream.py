"""Computes on a stream of high priority that waits for the caller's, which then waits for it."""

import torch

OPERATION = "matmul"
TWIN_OF = "gpu_late_other_stream"
GPU = True
SHAPE = "M=2048,N=2048,K=2048"

side = torch.cuda.Stream(priority=-1)


def matmul(a, b, *, precision="ieee"):
    current = torch.cuda.current_stream()
    side.wait_stream(current)
    with torch.cuda.stream(side):
        result = a @ b
    current.wait_stream(side)
    result.record_stream(current)
    return result
