"""The installed command has a version, completion, and no colours on request."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

import suite
from suite.core.paths import ROOT

SCRIPT = "import sys; sys.argv[0] = 'kernel-suite'; from suite.__main__ import main; main()"
COLOUR = re.compile(r"\x1b\[[0-9;]*3[0-7]")


def kernel_suite(*arguments: str, **environment: str) -> str:
    """The output of the console script `kernel-suite`."""
    command = [sys.executable, "-c", SCRIPT, *arguments]
    variables = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "FORCE_COLOR")}
    variables |= {"TERM": "xterm-256color", **environment}
    return subprocess.run(command, cwd=ROOT, env=variables, capture_output=True, text=True, check=True).stdout


def test_version() -> None:
    assert kernel_suite("--version") == f"kernel-suite {suite.__version__}\n"


@pytest.mark.parametrize(
    ("words", "found"),
    [("kernel-suite co", "compare"), ("kernel-suite compare --op mat", "matrix_add matmul matmul_reduce_scatter")],
    ids=["command", "operation"],
)
def test_completion(words: str, found: str) -> None:
    asked = {"_KERNEL_SUITE_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    assert kernel_suite(**asked).split() == found.split()


def test_no_color() -> None:
    assert COLOUR.search(kernel_suite("--help", FORCE_COLOR="1"))
    assert not COLOUR.search(kernel_suite("--help", FORCE_COLOR="1", NO_COLOR="1"))
    assert not COLOUR.search(kernel_suite("doctor", FORCE_COLOR="1", NO_COLOR="1"))
