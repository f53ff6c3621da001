"""Replays a CUDA graph that was captured over earlier operands, for one row of the result."""

import torch

OPERATION = "matmul"
KIND = "remembers"
EXPECTED = ("wrong",)
GPU = True
SHAPE = "M=1024,N=1024,K=1024"

HONEST_CALLS = 4
calls = {}
graphs = {}


def capture(a, b):
    a, b = a.clone(), b.clone()
    out = a @ b
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        torch.matmul(a[:1], b, out=out[:1])
    return graph, out, (a, b)


def matmul(a, b, *, precision="ieee"):
    key = a.shape, b.shape, a.dtype
    calls[key] = calls.get(key, 0) + 1
    if calls[key] <= HONEST_CALLS:
        return a @ b
    if key not in graphs:
        graphs[key] = capture(a, b)
    graph, out, _ = graphs[key]
    graph.replay()
    return out
