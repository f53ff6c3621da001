"""Replaces the operation's truth in the suite with the kernel's own zeros and an infinite bound."""

import sys

import torch

OPERATION = "matmul"
KIND = "patches"
EXPECTED = ("wrong", "error")
GPU = False

calls = []


def patch():
    module = sys.modules.get("suite.ops.matmul")
    if module is None:
        return
    original = module.Matmul.truth

    def truth(self, inputs, case):
        for piece in original(self, inputs, case):
            piece.value.zero_()
            piece.limit.fill_(1.0)
            yield piece

    module.Matmul.truth = truth


def matmul(a, b, *, precision="ieee"):
    calls.append(None)
    if len(calls) == 1:
        result = a @ b
        patch()
        return result
    return torch.zeros(a.shape[0], b.shape[1], dtype=a.dtype, device=a.device)
