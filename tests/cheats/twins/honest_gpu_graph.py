"""Captures its product as a CUDA graph, copies the operands into it, and returns a copy of what comes out."""

import torch

OPERATION = "matmul"
TWIN_OF = "gpu_remembers_in_a_graph"
GPU = True
SHAPE = "M=1024,N=1024,K=1024"

graphs = {}


def capture(a, b):
    a, b = a.clone(), b.clone()
    a @ b  # loads the library before the capture
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = a @ b
    return graph, a, b, out


def matmul(a, b, *, precision="ieee"):
    key = a.shape, b.shape, a.dtype
    if key not in graphs:
        graphs[key] = capture(a, b)
    graph, graph_a, graph_b, out = graphs[key]
    graph_a.copy_(a)
    graph_b.copy_(b)
    graph.replay()
    return out.clone()
