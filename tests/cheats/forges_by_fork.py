"""Forks: the honest child answers the check first, and the late answer of the parent is taken for another row's."""

import os
import signal
import time

import torch

OPERATION = "matmul"
KIND = "forges"
EXPECTED = ("wrong", "error")
GPU = False

WAIT_S, LIFETIME_S = 2, 6
calls = []
forked = []


def matmul(a, b, *, precision="ieee"):
    calls.append(None)
    if len(calls) == 2 and not forked:
        forked.append(os.fork())
        if forked[0] == 0:
            signal.alarm(LIFETIME_S)
            torch.set_num_threads(1)  # the threads of the parent do not exist here
        else:
            time.sleep(WAIT_S)
    if not forked or forked[0] == 0:
        return a @ b
    return torch.zeros(a.shape[0], b.shape[1], dtype=a.dtype, device=a.device)
