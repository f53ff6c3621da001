"""Replaces the function that hands out its result with one that computes it there, from the fourth timed call on."""

import sys

import torch

OPERATION = "vector_add"
KIND = "late"
EXPECTED = ("wrong", "error", "no effect")
GPU = False
SHAPE = "N=1048576"

HONEST_CALLS = 3
calls = []
before = {}


def is_timed():
    frame = sys._getframe(2)
    while frame is not None:
        if frame.f_code.co_name == "_sample":
            return True
        frame = frame.f_back
    return False


def replace(name, compute):
    """Let the method of this name of the session compute first, in the memory into which results are copied."""
    session = sys.modules["suite.external.session"].ExternalSession
    before.setdefault(name, getattr(session, name))

    def replaced(self, *arguments):
        compute(self)
        return before[name](self, *arguments)

    setattr(session, name, replaced)


def vector_add(a, b):
    if not is_timed():
        return a + b
    calls.append(None)
    if len(calls) <= HONEST_CALLS:
        return a + b
    out = torch.empty_like(a)
    replace("_export", lambda session: torch.add(a, b, out=session.held.result))
    replace("_sample", lambda session: torch.add(a, b, out=out))
    return out
