"""An implementation alone: its import brings neither its neighbours nor the libraries that only they need."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from thinning import thorough_unless

from suite import frameworks, ops
from suite.core.paths import ROOT
from suite.implementations import builtin

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
"""Frameworks of `make test`: torch's compiler takes two seconds to import."""
HEAVY = {"helion", "liger_kernel", "quack", "tokamax", "cutlass"}
"""Packages that single implementations call."""


@pytest.mark.slow(seconds=20)
@pytest.mark.parametrize(
    ("framework", "every"),
    [
        pytest.param(
            name, every, id=f"{name}-{'all' if every else 'some'}", marks=thorough_unless(not every and name in QUICK)
        )
        for name in frameworks.names()
        for every in (False, True)
    ],
)
def test_an_implementation_imports_no_neighbours(framework: str, every: bool) -> None:
    """In `make test` every fifth name of a variant, in one operation; of a framework without variants, one."""
    implementations = [
        each for op in ops.names() for each in builtin.implementations(op) if each.framework == framework
    ]
    rows = [(each.operation, each.name) for each in implementations]
    variants = {name: (operation, name) for operation, name in rows if "/" in name}
    chosen = rows if every else [*variants.values()][::5] or rows[:1]
    program = PROGRAM.format(first=FIRST.get(framework, "torch"))
    command = [
        sys.executable,
        "-W",
        "ignore",
        "-c",
        program,
        *(each.module for each, row in zip(implementations, rows, strict=True) if row in chosen),
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    loaded = dict(map(json.loads, done.stdout.splitlines()))
    for each in implementations:
        if (each.operation, each.name) not in chosen:
            continue
        found = set(loaded[each.module] or ())
        siblings = {
            other.module for other in implementations if "/" in other.name and other.operation == each.operation
        }
        assert found & siblings - {each.module} <= composed_of(each.module), each.module
        if each.peer is None:
            assert not {name.split(".")[0] for name in found} & HEAVY, each.module


def composed_of(module: str) -> set[str]:
    """The variants that a module's file names in its own imports."""
    text = (ROOT / module.replace(".", "/")).with_suffix(".py")
    text = text if text.is_file() else text.with_suffix("") / "__init__.py"
    lines = [line.split() for line in text.read_text(encoding="utf-8").splitlines() if line.startswith("from ")]
    named = {words[1] for words in lines}
    return named | {f"{words[1]}.{word.strip(',')}" for words in lines for word in words[3:]}
