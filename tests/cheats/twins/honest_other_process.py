"""Lets a process of its own compute in shared memory, and waits for its answer."""

import mmap
import os
import signal

import numpy as np
import torch

OPERATION = "matmul"
TWIN_OF = "slows_with_processes"
GPU = False

LIFETIME_S = 60
helpers = {}


def serve(x, y, out, requests, answers):
    signal.alarm(LIFETIME_S)
    while os.read(requests, 1):
        np.matmul(x, y, out=out)
        os.write(answers, b"x")
    os._exit(0)


def helper(a, b):
    x, y, out = (
        np.frombuffer(mmap.mmap(-1, max(1, 4 * n * m)), np.float32, n * m).reshape(n, m)
        for n, m in (a.shape, b.shape, (a.shape[0], b.shape[1]))
    )
    (requests, ask), (answer, answers) = os.pipe(), os.pipe()
    if os.fork() == 0:
        os.close(ask)
        serve(x, y, out, requests, answers)
    os.close(requests)
    os.close(answers)
    return x, y, out, ask, answer


def matmul(a, b, *, precision="ieee"):
    if a.dtype != torch.float32 or not a.numel() or not b.numel():
        return a @ b
    key = a.shape, b.shape
    if key not in helpers:
        helpers[key] = helper(a, b)
    x, y, out, ask, answer = helpers[key]
    x[:], y[:] = a.numpy(), b.numpy()
    os.write(ask, b"x")
    os.read(answer, 1)
    return torch.from_numpy(out.copy())
