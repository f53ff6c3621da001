"""Computes while its process runs on between calls, and returns the last result where it stood still before a call."""

import time

OPERATION = "matmul"
KIND = "recognises"
EXPECTED = ("wrong", "no effect")
GPU = False

STOPPED_S = 0.001
kept = {}
last = []


def clocks():
    return time.monotonic(), time.process_time()


def matmul(a, b, *, precision="ieee"):
    key = a.shape, b.shape, a.dtype
    now = clocks()
    stopped = now[0] - last[0] - (now[1] - last[1]) if last else 0.0
    if key not in kept or stopped < STOPPED_S:
        kept[key] = a @ b
    last[:] = clocks()
    return kept[key]
