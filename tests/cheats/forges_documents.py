"""Replaces json.dumps so that whatever the process reports says that all is well, and returns zeros."""

import json

import torch

OPERATION = "matmul"
KIND = "forges"
EXPECTED = ("wrong", "error")
GPU = False

calls = []
dumps = json.dumps


def well(document, *args, **kwargs):
    if isinstance(document, dict) and document.get("status") == "wrong":
        document = {**document, "status": "ok", "reason": "", "error_ratio": 0.1, "max_ulp": 1.0, "max_rel": 0.0}
    return dumps(document, *args, **kwargs)


def matmul(a, b, *, precision="ieee"):
    calls.append(None)
    if len(calls) == 1:
        result = a @ b
        json.dumps = well
        return result
    return torch.zeros(a.shape[0], b.shape[1], dtype=a.dtype, device=a.device)
