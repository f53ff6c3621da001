"""Allows bfloat16 products for float32 in the whole process when timed."""

import sys

import torch

OPERATION = "matmul"
KIND = "precision"
EXPECTED = ("wrong", "disturbs its neighbours", "undone", "no effect")
GPU = False


def is_timed():
    frame = sys._getframe(2)
    while frame is not None:
        if frame.f_code.co_name == "_sample":
            return True
        frame = frame.f_back
    return False


def matmul(a, b, *, precision="ieee"):
    if is_timed():
        torch.backends.mkldnn.matmul.fp32_precision = "bf16"
        torch.set_float32_matmul_precision("medium")
    return a @ b
