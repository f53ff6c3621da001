"""Kills the process from a thread, once it is timed and while another row is called."""

import os
import signal
import sys
import threading
import time

OPERATION = "matmul"
KIND = "destroys"
EXPECTED = ("disturbs its neighbours", "error", "no effect")
GPU = False

CLOSE_S = 0.005
own_turn = threading.Event()
threads = []
calls = []


def lurk():
    while own_turn.is_set() or time.monotonic() - calls[-1] < CLOSE_S:
        time.sleep(0.001)
    os.kill(os.getpid(), signal.SIGKILL)


def is_timed():
    frame = sys._getframe(2)
    while frame is not None:
        if frame.f_code.co_name == "_sample":
            return True
        frame = frame.f_back
    return False


def matmul(a, b, *, precision="ieee"):
    own_turn.set()
    result = a @ b
    calls.append(time.monotonic())
    if is_timed() and len(calls) > 3 and not threads:
        threads.append(threading.Thread(target=lurk, daemon=True))
        threads[0].start()
    own_turn.clear()
    return result
