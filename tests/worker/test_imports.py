"""A process imports a framework only after that has been prepared for the device."""

from __future__ import annotations

import subprocess
import sys

import pytest

from suite.core.paths import ROOT


@pytest.mark.parametrize("module", ["suite.worker.process_main", "suite.external.fork_server_main"])
def test_a_new_process_has_no_framework_yet(module: str) -> None:
    code = f"import sys, {module}; print(sorted({{'torch', 'jax', 'triton', 'numpy'}} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
