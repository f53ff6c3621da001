"""Calls every file of the gallery that runs on a CPU once, each in a process of its own, and prints who is not right.

    python tests/cheats/_first_calls.py

A cheat is honest in its first call: it has nothing to return but what it computes. The .cu files are only built by the
suite and are not called here.
"""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import sys
import traceback
from pathlib import Path
from types import ModuleType

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parents[1]))
import cheats

LIMIT_S = 20
SEED = 20
SIZE, LENGTH, K = 64, 1000, 8
same = torch.equal  # a cheat replaces it


def operands(operation: str, case: str) -> list[torch.Tensor]:
    source = torch.Generator().manual_seed(SEED)
    if operation == "matmul":
        shapes = [(SIZE, SIZE)] * 2
    elif operation == "attention":
        size = dict(each.split("=") for each in case.split(","))
        B, H, H_kv, S_q, S_k, D = (int(size[name]) for name in ("B", "H", "H_kv", "S_q", "S_k", "D"))
        shapes = [(B, H, S_q, D), (B, H_kv, S_k, D), (B, H_kv, S_k, D)]
    elif operation == "top_k":
        shapes = [(SIZE, LENGTH)]
    else:
        shapes = [(LENGTH,)] * (1 if operation == "sigmoid" else 2)
    return [torch.randn(shape, generator=source) for shape in shapes]


def truth(operation: str, inputs: list[torch.Tensor]) -> torch.Tensor:
    wide = [each.double() for each in inputs]
    if operation == "matmul":
        return wide[0] @ wide[1]
    if operation == "vector_add":
        return wide[0] + wide[1]
    if operation == "sigmoid":
        return 1 / (1 + torch.exp(-wide[0]))
    if operation == "top_k":
        return wide[0].topk(K, dim=1).values
    q, k, v = wide
    k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], dim=1) for x in (k, v))
    return (q @ k.mT * q.shape[3] ** -0.5).softmax(dim=-1) @ v


def load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"gallery_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def first_call(each: cheats.Cheat) -> str:
    """Why the first call is not right; empty if it is."""
    inputs = operands(each.operation, each.shape)
    expected, before = truth(each.operation, inputs), [x.clone() for x in inputs]
    module = load(each.path)
    native = [x if getattr(module, "framework", "torch") == "torch" else x.numpy() for x in inputs]  # also for JAX
    result = getattr(module, each.operation)(*native, **({"k": K} if each.operation == "top_k" else {}))
    result = result[0] if isinstance(result, tuple) else result
    result = result.detach() if isinstance(result, torch.Tensor) else torch.as_tensor(np.asarray(result))
    if result.shape != expected.shape or result.dtype != torch.float32:
        return f"{tuple(result.shape)} {result.dtype}"
    error = float((result.double() - expected).abs().max())
    if not error < 1e-4:
        return f"largest error {error:.3g}"
    return "" if all(map(same, inputs, before)) else "inputs changed"


def in_a_process(each: cheats.Cheat) -> str:
    receive, send = os.pipe()
    child = os.fork()
    if child == 0:
        os.setpgid(0, 0)
        signal.alarm(LIMIT_S)
        torch.set_num_threads(1)
        try:
            said = first_call(each)
        except BaseException:
            said = traceback.format_exc()
        os.write(send, said.encode()[-4000:] + b"\0")
        os.killpg(0, signal.SIGKILL)  # threads and processes that a cheat has started do not outlive it
    os.close(send)
    with os.fdopen(receive, "rb") as answer:
        said = b""
        while not said.endswith(b"\0") and (data := answer.read1()):
            said += data
    os.waitpid(child, 0)
    return said[:-1].decode() if said.endswith(b"\0") else "the process ended without an answer"


def main() -> None:
    found = {
        each.name: in_a_process(each)
        for each in [*cheats.cheats(), *cheats.twins()]
        if not each.gpu and each.path.suffix == ".py"
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
