"""Writes an answer with times of its own choice for all rows when it is timed."""

import contextlib
import fcntl
import json
import os
import sys

OPERATION = "matmul"
KIND = "forges"
EXPECTED = ("wrong", "error", "no effect")
GPU = False

OWN = "with/forges_a_timing"
written = []


def names():
    """The rows that are timed, from the callers' variables."""
    frame = sys._getframe()
    while frame is not None:
        found = frame.f_locals.get("names")
        if isinstance(found, list) and OWN in found:
            return found
        frame = frame.f_back
    return []


def pipes():
    """Descriptors of pipes that only this process writes, beside the standard streams."""
    for name in os.listdir("/proc/self/fd"):
        fd = int(name)
        with contextlib.suppress(OSError):
            is_pipe = os.readlink(f"/proc/self/fd/{fd}").startswith("pipe:")
            if fd > 2 and is_pipe and fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE == os.O_WRONLY:
                yield fd


def timing(name):
    us = 0.5 if name == OWN else 5000.0
    return {"device_us": us, "latency_us": us, "dispatch_us": us, "recorder": "wall", "cache": "cold", "reason": ""}


def matmul(a, b, *, precision="ieee"):
    timed = names()
    if timed and not written:
        written.append(timed)
        document = {"event": "done", "timings": {name: timing(name) for name in timed}}
        for fd in pipes():
            os.write(fd, json.dumps(document).encode() + b"\n")
    return a @ b
