"""Replays the graph of its product on a stream of its own when timed, and returns before it has run."""

import gc

import torch

OPERATION = "matmul"
KIND = "late"
EXPECTED = ("wrong", "no effect", "error")
GPU = True
SHAPE = "M=2048,N=2048,K=2048"

side = torch.cuda.Stream()
graphs = {}


def capture(a, b):
    out = a @ b
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=side):
        torch.matmul(a, b, out=out)
    torch.cuda.synchronize()
    return graph, out


def matmul(a, b, *, precision="ieee"):
    key = a.data_ptr(), b.data_ptr(), a.shape, b.shape
    if gc.isenabled():
        return a @ b
    if key not in graphs:
        graphs[key] = capture(a, b)
    graph, out = graphs[key]
    with torch.cuda.stream(side):
        graph.replay()
    return out
