"""Returns the last result once six calls have come within a second and a half."""

import collections
import time

OPERATION = "matmul"
KIND = "recognises"
EXPECTED = ("wrong",)
GPU = False

WINDOW_S = 1.5
recent = collections.deque(maxlen=6)
kept = {}


def matmul(a, b, *, precision="ieee"):
    key = a.shape, b.shape, a.dtype
    recent.append(time.monotonic())
    if key not in kept or len(recent) < recent.maxlen or recent[-1] - recent[0] > WINDOW_S:
        kept[key] = a @ b
    return kept[key]
