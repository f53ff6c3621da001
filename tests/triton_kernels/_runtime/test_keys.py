"""Triton's cache keys do not depend on which kernels were launched before.

The kernels share functions that hold constants.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
KERNELS = (
    "matmul.matmul_kernel",
    "matmul.parts.parts_matmul_kernel",
    "attention.attention_kernel",
    "attention.two_passes.two_passes_kernel",
    "attention._rows.load_rows",
    "quantize.quantize_kernel",
    "silu_mul.silu_mul_kernel",
    "top_k.bitonic.bitonic_kernel",
)
PRINT = """
import importlib, sys
for name in sys.argv[1:]:
    module, _, kernel = name.rpartition(".")
    found = getattr(importlib.import_module(f"triton_kernels.{module}"), kernel)
    print(name, (found.fn if hasattr(found, "configs") else found).cache_key)
"""


def keys(names: list[str]) -> set[str]:
    environment = os.environ | {"TRITON_INTERPRET": "0", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", PRINT, *names]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.splitlines())


def test_keys_are_the_same_in_any_order() -> None:
    assert keys(list(KERNELS)) == keys(list(reversed(KERNELS)))
