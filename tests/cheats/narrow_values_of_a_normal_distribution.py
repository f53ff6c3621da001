"""Takes arguments beyond 6.5, which normal numbers hardly reach, for 6.5."""

import torch

OPERATION = "sigmoid"
KIND = "narrow"
EXPECTED = ("wrong",)
GPU = False


def sigmoid(x):
    return torch.sigmoid(x.clamp(-6.5, 6.5))
