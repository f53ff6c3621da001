"""XLA's number of threads in the process of a caller."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

SCRIPT = """
import os, jax
from suite import frameworks
from suite.hardware.device import resolve
if {used}:
    jax.numpy.ones(3) + 1
adapter = frameworks.get("jax")
adapter.prepare(resolve("cpu"))
print(adapter.has_own_threads(), os.environ.get("PJRT_NPROC"))
jax.numpy.ones(3) + 1
print(adapter.has_own_threads())
"""


@pytest.mark.parametrize(("used", "printed"), [(False, "False 3\nFalse\n"), (True, "True None\nTrue\n")])
def test_xla_gets_the_threads_unless_it_was_in_use_before(used: bool, printed: str) -> None:
    variables = {name: value for name, value in os.environ.items() if name != "PJRT_NPROC"}
    variables |= {"OMP_NUM_THREADS": "3", "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT.format(used=used)], env=variables, capture_output=True, text=True, check=True
    )
    assert done.stdout == printed
