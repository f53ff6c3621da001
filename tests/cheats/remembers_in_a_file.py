"""Keeps results in a file, so that another process, the one that is timed, need not compute."""

import os
import tempfile
from pathlib import Path

import torch

OPERATION = "matmul"
KIND = "remembers"
EXPECTED = ("wrong", "no effect")
GPU = False

FILE = Path(tempfile.gettempdir()) / f"cheat-results-{os.getuid()}.pt"
KEPT = 16
results = torch.load(FILE) if FILE.is_file() and FILE.stat().st_uid == os.getuid() else {}


def matmul(a, b, *, precision="ieee"):
    key = str((tuple(a.shape), tuple(b.shape), a.flatten()[:4].tolist(), b.flatten()[:4].tolist()))
    if key not in results:
        results[key] = a @ b
        if len(results) <= KEPT:
            torch.save(results, FILE)
    return results[key].clone()
