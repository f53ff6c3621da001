"""Timers of the system continue the stopped process, in which a thread computes as soon as it sees other inputs."""

import ctypes
import signal
import threading
import time

OPERATION = "matmul"
KIND = "late"
EXPECTED = ("error", "no effect", "wrong")
GPU = False

TIMERS, FIRST_NS, GROWTH = 30, 2_000_000, 1.2
libc = ctypes.CDLL(None)
state = {}
timers = []


class Event(ctypes.Structure):
    _fields_ = [("value", ctypes.c_long), ("signal", ctypes.c_int), ("how", ctypes.c_int), ("rest", ctypes.c_long * 6)]


def watch():
    seen = None
    while True:
        a, b = state["inputs"]
        now = float(a.sum()), float(b.sum())
        if now != seen:
            state["result"] = now, a @ b
            seen = now
        time.sleep(0)


def arm():
    """Lets a SIGCONT come again and again, since a signal that stops the process drops one that waits."""
    if not timers:
        signal.signal(signal.SIGCONT, lambda *_: None)  # the system sends no signal that is ignored
        for _ in range(TIMERS):
            event, timer = Event(signal=signal.SIGCONT), ctypes.c_void_p()
            libc.timer_create(time.CLOCK_MONOTONIC, ctypes.byref(event), ctypes.byref(timer))
            timers.append(timer)
    for number, timer in enumerate(timers):
        once = (ctypes.c_long * 4)(0, 0, 0, int(FIRST_NS * GROWTH**number))
        libc.timer_settime(timer, 0, once, None)


def matmul(a, b, *, precision="ieee"):
    first = "inputs" not in state
    state["inputs"] = a, b
    if first:
        threading.Thread(target=watch, daemon=True).start()
    arm()
    known = state.get("result")
    if known is not None and known[0] == (float(a.sum()), float(b.sum())) and known[1].shape == (len(a), b.shape[1]):
        return known[1].clone()
    return a @ b
