"""The configurations that the autotuned kernels of the tree offer to a search."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from suite.core.paths import ROOT
from suite.implementations import builtin
from suite.runner import tune

pytest.importorskip("triton")


def autotuned() -> list[str]:
    """The files of triton_kernels that call triton.autotune."""
    found = []
    for path in sorted((ROOT / "triton_kernels").glob("*.py")):
        calls = (node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call))
        if any(ast.unparse(each.func) == "triton.autotune" for each in calls):
            found.append(path.stem)
    return found


@pytest.mark.parametrize("name", autotuned())
def test_every_autotuned_kernel_has_a_tuning_space(name: str) -> None:
    operation = builtin.operation_of(name)
    assert operation is not None
    lines = {line.module: line for line in builtin.implementations(operation)}
    assert tune.tunable(lines[f"triton_kernels.{name}"])


def questions(name: str) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Arguments and constants with which a kernel may be launched."""
    from triton.experimental.gluon import language as gl

    kinds = {"bfloat16": ("ieee", gl.bfloat16), "float32": ("tf32", gl.float32), "ieee": ("ieee", gl.float32)}
    if name == "attention":
        for dtype in (torch.bfloat16, torch.float32):
            for D in (16, 64, 128, 256):
                for S_q, G in ((1, 1), (1, 8), (77, 1), (4096, 1)):
                    yield {"q_ptr": torch.empty(1, dtype=dtype), "S_q": S_q}, {"D": D, "G": G}
        return
    for kind, (precision, DTYPE) in kinds.items():
        x = torch.empty(1, dtype=getattr(torch, kind, torch.float32))
        for shape in ((1, 1, 1), (16, 14336, 4096), (1000, 64, 300), *((n, n, n) for n in (512, 1024, 4096, 16384))):
            sizes = dict(zip("MNK", shape, strict=True))
            if name == "matmul":
                yield {"a_ptr": x, **sizes}, {"PRECISION": precision}
            elif (kind == "ieee") == (name == "matmul_split"):
                desc = SimpleNamespace(base=x)
                yield {"a_desc": desc, "c_desc": desc, **sizes}, {"PRECISION": precision, "DTYPE": DTYPE}


@pytest.mark.parametrize("name", autotuned())
def test_a_short_list_has_at_most_eight_and_a_tuning_space_has_the_same_parameters(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    properties = SimpleNamespace(multi_processor_count=132, shared_memory_per_multiprocessor=228 * 1024)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device=None: properties)
    module = import_module(f"triton_kernels.{name}")
    every = [config for names, value in vars(module).items() if names.endswith("CONFIGS") for config in _flat(value)]
    parameters = {frozenset(config.kwargs) for config in every}
    hooks = {config.pre_hook for config in every}
    for arguments, constants in questions(name):
        short = module._candidates(every, arguments, **constants)
        assert 1 <= len(short) <= 8, (arguments, constants)
        found = module.tuning_space(arguments, **constants)
        assert len({*short, *found}) <= 70, (arguments, constants)
        assert len(set(found)) == len(found)
        assert {frozenset(config.kwargs) for config in found} <= parameters
        assert {config.pre_hook for config in found} <= hooks


def _flat(configs: Any) -> list[Any]:
    return [each for group in configs.values() for each in group] if isinstance(configs, dict) else list(configs)
