"""Replaces the suite's own judge, wherever a module has it, with one that agrees, and returns zeros."""

import dataclasses
import inspect
import sys

import torch

OPERATION = "matmul"
KIND = "patches"
EXPECTED = ("wrong", "error")
GPU = False

JUDGES = ("compare", "judge", "examine", "check", "still_right")
calls = []


def lenient(judge):
    def agree(*args, **kwargs):
        verdict = judge(*args, **kwargs)
        if not hasattr(verdict, "agrees"):
            return verdict
        return dataclasses.replace(verdict, agrees=True, reason="", error_ratio=0.1)

    return agree


def patch():
    for name, module in list(sys.modules.items()):
        for attribute in JUDGES if name.startswith("suite.") else ():
            if inspect.isfunction(getattr(module, attribute, None)):
                setattr(module, attribute, lenient(getattr(module, attribute)))


def matmul(a, b, *, precision="ieee"):
    calls.append(None)
    if len(calls) == 1:
        result = a @ b
        patch()
        return result
    return torch.zeros(a.shape[0], b.shape[1], dtype=a.dtype, device=a.device)
