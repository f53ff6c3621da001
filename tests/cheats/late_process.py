"""Returns shared memory at once, into which another process computes later, when it is timed."""

import mmap
import os
import signal
import sys

import numpy as np
import torch

OPERATION = "matmul"
KIND = "late"
EXPECTED = ("wrong", "no effect")
GPU = False
SHAPE = "M=256,N=256,K=256"

LIFETIME_S = 20
children = []
ring = []
turn = 0


def serve(a, b, out, requests):
    signal.alarm(LIFETIME_S)
    while os.read(requests, 1):
        np.matmul(a, b, out=out)


def start(a, b):
    """A child that shares copies of the operands and a result with this process."""
    x, y, out = (
        np.frombuffer(mmap.mmap(-1, 4 * n * m), np.float32).reshape(n, m)
        for n, m in (a.shape, b.shape, (a.shape[0], b.shape[1]))
    )
    x[:], y[:] = a.numpy(), b.numpy()
    requests, send = os.pipe()
    if os.fork() == 0:
        os.close(send)
        serve(x, y, out, requests)
        os._exit(0)
    os.close(requests)
    np.matmul(x, y, out=out)
    return torch.from_numpy(out), send


def is_timed():
    frame = sys._getframe(2)
    while frame is not None:
        if frame.f_code.co_name == "_sample":
            return True
        frame = frame.f_back
    return False


def matmul(a, b, *, precision="ieee"):
    if not is_timed() or a.dtype != torch.float32:
        return a @ b
    if not children:
        children.append(start(a, b))
    out, send = children[0]
    os.write(send, b"x")
    return out
