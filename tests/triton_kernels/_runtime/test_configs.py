"""The autotuners' configurations: short lists, the spaces of longer searches, and the committed tuned files."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import triton
from triton.experimental.gluon import language as gl

from suite import ops
from suite.implementations import builtin
from suite.runner import tune
from triton_kernels._runtime import configs

FOLDER = Path(__file__).resolve().parents[3] / "triton_kernels"
OPTIONS = {"num_warps", "num_stages", "maxnreg"}


IMPLEMENTATIONS = {
    each.module.removeprefix("triton_kernels."): each
    for operation in ops.names()
    for each in builtin.implementations(operation)
    if each.framework == "triton"
}


def autotuned() -> list[str]:
    """The modules of the implementations of triton_kernels that call autotune: `matmul`, `matmul.gluon`."""
    found = []
    for module, each in IMPLEMENTATIONS.items():
        path = builtin.files(each.framework, each.operation)[each.name.partition("/")[2]]
        if "autotune(" not in (text := path.read_text()):
            continue
        calls = (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call))
        if any(ast.unparse(node.func).endswith("autotune") for node in calls):
            found.append(module)
    return found


SEARCHED = [name for name in autotuned() if tune.tunable(IMPLEMENTATIONS[name])]


def test_autotuned_kernels_have_the_autotuner_that_remembers() -> None:
    expected = {"matmul", "attention", "attention.packed", "conv2d.taps"}
    expected |= {f"matmul.{variant}" for variant in ("gluon", "parts", "persistent", "pipelined", "split")}
    assert expected <= set(autotuned())
    assert not [path.name for path in FOLDER.rglob("*.py") if "triton.autotune(" in path.read_text()]


@pytest.mark.parametrize("name", [name for name in autotuned() if name not in SEARCHED])
def test_only_plain_kernels_have_no_tuning_space_and_at_most_six_configurations(name: str) -> None:
    assert 1 <= len(import_module(f"triton_kernels.{name}").CONFIGS) <= 6


def launches(name: str) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Arguments and constants with which a kernel may be launched."""
    kinds = {"bfloat16": ("ieee", gl.bfloat16), "float32": ("tf32", gl.float32), "ieee": ("ieee", gl.float32)}
    if name in ("attention", "attention.two_passes", "attention.packed"):
        for dtype in (torch.bfloat16, torch.float32):
            for D in (16, 64, 128, 256):
                for S_q, G in ((17, 1), (17, 8), (77, 1), (4096, 1)):
                    yield {"q_ptr": torch.empty(1, dtype=dtype), "S_q": S_q}, {"D": D, "G": G}
        return
    if name.startswith("attention_grad"):
        for dtype in (torch.bfloat16, torch.float32):
            for D in (16, 64, 128):
                yield {"q_ptr": torch.empty(1, dtype=dtype)}, {"D": D}
                yield {"q_ptr": torch.empty(1, dtype=dtype), "dk_ptr": torch.empty(1, dtype=dtype)}, {"D": D}
        return
    if name.startswith("grouped_"):
        for T, E in ((16, 1), (128, 64), (32768, 8)):
            yield {"x_desc": SimpleNamespace(base=torch.empty(1, dtype=torch.bfloat16)), "T": T, "E": E}, {}
        return
    if name == "conv2d.boxes":
        for dtype, precision in ((torch.bfloat16, "ieee"), (torch.float32, "tf32")):
            for K in (56, 64, 128, 136, 512):
                yield {"x_desc": SimpleNamespace(base=torch.empty(1, dtype=dtype))}, {"PRECISION": precision, "K": K}
        return
    if name == "conv2d.taps":
        for kind, (precision, _) in kinds.items():
            for K in (1, 64, 136, 512):
                x = torch.empty(1, dtype=getattr(torch, kind, torch.float32))
                yield {"x_ptr": x}, {"PRECISION": precision, "K": K}
        return
    for kind, (precision, DTYPE) in kinds.items():
        x = torch.empty(1, dtype=getattr(torch, kind, torch.float32))
        for shape in ((1, 1, 1), (16, 14336, 4096), (1000, 64, 300), *((n, n, n) for n in (512, 1024, 4096, 16384))):
            sizes = dict(zip("MNK", shape, strict=True))
            if name == "matmul.pipelined":
                yield {"a_ptr": x, **sizes}, {"PRECISION": precision}
            elif name == "matmul.parts":
                for K_part in {256, triton.cdiv(shape[2], 512) * 256}:
                    yield {"a_ptr": x, **sizes, "K_part": K_part}, {"PRECISION": precision}
            elif name == "linear_sigmoid.pipelined":
                yield {"x_ptr": x, **sizes}, {"PRECISION": precision}
            elif (kind == "ieee") == (name == "matmul.split"):
                desc = SimpleNamespace(base=x)
                yield (
                    {"a_desc": desc, "x_desc": desc, "c_desc": desc, **sizes},
                    {"PRECISION": precision, "DTYPE": DTYPE},
                )


@pytest.mark.parametrize("name", SEARCHED)
def test_at_most_8_in_a_short_list_and_70_in_a_search(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    properties = SimpleNamespace(multi_processor_count=132, shared_memory_per_multiprocessor=228 * 1024)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device=None: properties)
    monkeypatch.setattr(configs, "INTERPRETED", configs.Device(132, 1980.0, 4.917e6))
    module = import_module(f"triton_kernels.{name}")
    parameters = {frozenset(config.kwargs) for config in module.CONFIGS}
    hooks = {config.pre_hook for config in module.CONFIGS}
    for arguments, constants in launches(name):
        short = module.short_list(module.CONFIGS, arguments, **constants)
        assert 1 <= len(short) <= 8, (arguments, constants)
        if not hasattr(module, "tuning_space"):
            continue
        found = module.tuning_space(arguments, **constants)
        assert len({*short, *found}) <= 70, (arguments, constants)
        assert len(set(found)) == len(found)
        assert {frozenset(config.kwargs) for config in found} <= parameters
        assert {config.pre_hook for config in found} <= hooks


@pytest.mark.parametrize(
    "path", sorted(FOLDER.glob("tuned/*/*.json")), ids=lambda path: f"{path.parent.name}-{path.stem}"
)
def test_tuned_entries_fit_the_kernels(path: Path) -> None:
    for entry in json.loads(path.read_text())["entries"]:
        file, _, function = entry["kernel"].rpartition(".")
        module = import_module(f"triton_kernels.{file}")
        assert hasattr(module, function), entry["kernel"]
        assert entry["config"].keys() - OPTIONS in [config.kwargs.keys() for config in module.CONFIGS], entry


@pytest.mark.parametrize(("D", "G", "timed"), [(64, 1, 1), (64, 4, 1), (128, 1, 1), (128, 4, 2), (256, 1, 4)])
def test_attention_by_tma_times_only_what_may_be_fastest(D: int, G: int, timed: int) -> None:
    module = import_module("triton_kernels.attention.packed")
    arguments = {"q_ptr": torch.empty(1, dtype=torch.bfloat16), "k_desc": object(), "S_q": 4096}
    assert len(module.short_list(module.CONFIGS, arguments, D=D, G=G)) == timed
