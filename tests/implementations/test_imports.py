"""An implementation alone: its import brings neither its neighbours nor the libraries that only they need."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from suite import frameworks, ops
from suite.core.paths import ROOT
from suite.implementations import builtin
from suite.implementations.implementation import Implementation

PROGRAM = """
import gc, importlib, json, os, sys
gc.disable()  # a collection visits torch's million objects, and copies the pages that a fork shares
import {first}
for name in sys.argv[1:]:
    read, write = os.pipe()
    if os.fork() == 0:
        os.close(read)
        known = set(sys.modules)
        try:
            importlib.import_module(name)
            found = sorted(set(sys.modules) - known)
        except ImportError as error:
            found = None if error.name and not error.name.startswith(name.split(".")[0]) else [repr(error)]
        with os.fdopen(write, "w") as file:
            json.dump(found, file)
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as file:
        print(json.dumps([name, json.load(file)]))
"""
"""Imports each module in a process of its own, after the framework, and prints the modules that this loads."""
COMPILER = "torch, torch._dynamo, torch._inductor.compile_fx, torch.nn.attention.bias"  # torch's own, two seconds each
FIRST = {"triton": "torch, triton", "jax": "jax", "cuda": "torch", "torch": COMPILER, "numpy": "numpy"}
QUICK = ("triton", "cuda", "jax", "numpy")
"""Frameworks of `make test`, in one process: torch's compiler takes two more seconds to import."""
HEAVY = {"helion", "liger_kernel", "quack", "tokamax", "cutlass"}
"""Packages that single implementations call."""


@pytest.mark.slow(seconds=10)
@pytest.mark.parametrize(
    ("some_frameworks", "every"),
    [
        pytest.param(QUICK, False, id="some"),
        pytest.param(("torch",), False, id="torch-some", marks=pytest.mark.thorough),
        *(pytest.param((name,), True, id=f"{name}-all", marks=pytest.mark.thorough) for name in frameworks.names()),
    ],
)
def test_an_implementation_imports_no_neighbours(some_frameworks: tuple[str, ...], every: bool) -> None:
    """In `make test` every fifth name of a variant, in one operation; of a framework without variants, one."""
    implementations = [each for op in ops.names() for each in builtin.implementations(op)]
    chosen = [each for name in some_frameworks for each in some_of(implementations, name, every=every)]
    program = PROGRAM.format(first=", ".join(FIRST.get(name, "torch") for name in some_frameworks))
    command = [sys.executable, "-W", "ignore", "-c", program, *(each.module for each in chosen)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    loaded = dict(map(json.loads, done.stdout.splitlines()))
    for each in chosen:
        found = set(loaded[each.module] or ())
        siblings = {
            other.module
            for other in implementations
            if "/" in other.name and (other.operation, other.framework) == (each.operation, each.framework)
        }
        assert found & siblings - {each.module} <= composed_of(each.module), each.module
        if each.peer is None:
            assert not {name.split(".")[0] for name in found} & HEAVY, each.module


def some_of(implementations: list[Implementation], framework: str, *, every: bool) -> list[Implementation]:
    """The implementations of a framework; else every fifth of the variants' names, or the first one."""
    own = [each for each in implementations if each.framework == framework]
    variants = {each.name: each for each in own if "/" in each.name}
    return own if every else [*variants.values()][::5] or own[:1]


def composed_of(module: str) -> set[str]:
    """The variants that a module's file names in its own imports."""
    text = (ROOT / module.replace(".", "/")).with_suffix(".py")
    text = text if text.is_file() else text.with_suffix("") / "__init__.py"
    lines = [line.split() for line in text.read_text(encoding="utf-8").splitlines() if line.startswith("from ")]
    named = {words[1] for words in lines}
    return named | {f"{words[1]}.{word.strip(',')}" for words in lines for word in words[3:]}
