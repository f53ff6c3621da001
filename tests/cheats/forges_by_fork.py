"""Forks, so that two processes answer, and every later answer is taken for that of another row."""

import os
import signal

import torch

OPERATION = "matmul"
KIND = "forges"
EXPECTED = ("wrong", "error")
GPU = False

LIFETIME_S = 20
calls = []


def matmul(a, b, *, precision="ieee"):
    calls.append(None)
    if len(calls) == 1:
        return a @ b
    if len(calls) == 2 and os.fork() == 0:
        signal.alarm(LIFETIME_S)
        torch.set_num_threads(1)  # the threads of the parent do not exist here
        return a @ b
    return torch.zeros(a.shape[0], b.shape[1], dtype=a.dtype, device=a.device)
