"""A thread computes as soon as it sees other inputs, and the call returns what is there."""

import threading
import time

OPERATION = "matmul"
KIND = "late"
EXPECTED = ("no effect", "wrong")
GPU = False

state = {}


def watch():
    seen = None
    while True:
        a, b = state["inputs"]
        now = float(a.sum()), float(b.sum())
        if now != seen:
            state["result"] = now, a @ b
            seen = now
        time.sleep(0)


def matmul(a, b, *, precision="ieee"):
    first = "inputs" not in state
    state["inputs"] = a, b
    if first:
        threading.Thread(target=watch, daemon=True).start()
    known = state.get("result")
    if known is not None and known[0] == (float(a.sum()), float(b.sum())) and known[1].shape == (len(a), b.shape[1]):
        return known[1].clone()
    return a @ b
