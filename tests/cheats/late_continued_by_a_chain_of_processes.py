"""A chain of short processes continues the stopped one, in which a thread computes as soon as it sees other inputs."""

import os
import signal
import threading
import time

OPERATION = "matmul"
KIND = "late"
EXPECTED = ("error", "no effect", "wrong")
GPU = False

LIFETIME_S, STEP_S = 10.0, 0.0005
state = {}


def chain(target):
    """Each process lives for a moment, wakes the target, and leaves a successor."""
    end = time.monotonic() + LIFETIME_S
    if os.fork():
        return
    while time.monotonic() < end:
        time.sleep(STEP_S)
        try:
            os.kill(target, signal.SIGCONT)
            if os.fork():
                os._exit(0)
        except OSError:
            break
    os._exit(0)


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
        result = a @ b
        chain(os.getpid())
        threading.Thread(target=watch, daemon=True).start()
        return result
    known = state.get("result")
    if known is not None and known[0] == (float(a.sum()), float(b.sum())) and known[1].shape == (len(a), b.shape[1]):
        return known[1].clone()
    return a @ b
