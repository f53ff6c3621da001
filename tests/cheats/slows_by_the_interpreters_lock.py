"""Keeps a thread that gives Python's lock away only every fifth of a second."""

import sys
import threading
import time

OPERATION = "matmul"
KIND = "slows"
EXPECTED = ("disturbs its neighbours", "undone", "no effect")
GPU = False

LIFETIME_S = 10.0
called_at = time.monotonic()
own_turn = threading.Event()
threads = []


def hold():
    while time.monotonic() - called_at < LIFETIME_S:
        if own_turn.is_set():
            time.sleep(0.0005)
        else:
            sum(range(2000))


def matmul(a, b, *, precision="ieee"):
    global called_at
    own_turn.set()
    called_at = time.monotonic()
    result = a @ b
    if not threads:
        sys.setswitchinterval(0.2)
        threads.append(threading.Thread(target=hold, daemon=True))
        threads[0].start()
    own_turn.clear()
    return result
