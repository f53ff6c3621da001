"""Problems of GPU MODE: a folder with task.yml and reference.py, and submissions."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from custom_files import CPU

from suite import custom
from suite.checking.check import CheckResult, check
from suite.checking.problem import Problem
from suite.core.errors import UsageError
from suite.custom import arguments, task_file
from suite.custom.file import source_of
from suite.custom.operation import CustomOperation
from suite.frameworks.torch import ADAPTER
from suite.implementations.reference import find

TASK = """# name: scaled
files:
  - {"name": "submission.py", "source": "@SUBMISSION@"}
  - {"name": "helpers_of_scaled.py", "source": "../shared.py"}
  - {"name": "reference.py", "source": "reference.py"}

description: |
  tests: this is a text
    - {"size": 1}

tests:
  - {"size": 15, "seed": 1, "kind": "normal"}  # a comment
  - {'size': 33, 'seed': 2, 'kind': "uniform"}
  # - {"size": 64}

benchmarks:
  - {"size": 4096, "seed": 3, "kind": "normal"}
"""
REFERENCE = """
import torch
from helpers_of_scaled import factor


def generate_input(size: int, seed: int, kind: str):
    gen = torch.Generator(device="cuda")
    gen.manual_seed(seed)
    draw = torch.randn if kind == "normal" else torch.rand
    x = draw(size, device="cuda", dtype=torch.float16, generator=gen).contiguous()
    weights = {"scale": draw(size, device="cuda", dtype=torch.float32, generator=gen)}
    return x, weights, {"power": 2}, torch.empty(size, device="cuda", dtype=torch.float32)


def ref_kernel(data):
    x, weights, config, output = data
    return (x.double() * weights["scale"] * factor()) ** config["power"]
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    found = tmp_path / "scaled_py"
    found.mkdir()
    (found / task_file.NAME).write_text(TASK, encoding="utf-8")
    (found / "reference.py").write_text(REFERENCE, encoding="utf-8")
    (tmp_path / "shared.py").write_text(
        'import torch\ndef factor():\n    return torch.full((), 3.0, device="cuda")\n', encoding="utf-8"
    )
    return found


@pytest.fixture
def op(folder: Path) -> CustomOperation:
    return custom.find(source_of(folder, "gpumode"))


def checked(op: CustomOperation, entry: Callable[..., Any], index: int = 0) -> CheckResult:
    case = op.default_cases("cpu")[index]
    return check(lambda: op.callable_of(entry, case), ADAPTER, Problem(case, 0, CPU))


def test_tests_are_cases_and_inputs_keep_their_types(op: CustomOperation) -> None:
    assert (op.name, op.entry, op.signature) == ("scaled_py", "custom_kernel", "custom_kernel(data)")
    assert [case.label for case in op.default_cases("cpu")] == ["size=15,kind=0", "size=33,kind=1"]
    case = op.case((7, 1), "float16")
    x, output, scale = sorted(op.make_inputs(case, 0, CPU), key=lambda each: (each.dtype is torch.float32, each.sum()))
    assert {x.dtype, scale.dtype, output.dtype} == {torch.float16, torch.float32}
    assert op.output_dtypes(case) == ("float32",)
    with pytest.raises(UsageError, match="kind is the position of one of 2 values"):
        op.make_inputs(op.case((7, 2), "float16"), 0, CPU)


def test_submissions_are_judged(op: CustomOperation) -> None:
    case = op.default_cases("cpu")[1]
    assert check(find(case, "torch").function, ADAPTER, Problem(case, 0, CPU)).reason == ""

    def returned(data: Any) -> Any:
        x, weights, _, _ = data
        return (x.float() * weights["scale"] * 3.0).square()

    def written(data: Any) -> Any:
        data[3].copy_(returned(data))
        return data[3]

    assert checked(op, returned).reason == ""
    assert checked(op, written, 1).reason == ""
    assert "expected" in checked(op, lambda data: data[3]).reason
    assert "expected" in checked(op, lambda data: data[0].float() * 3.0).reason
    assert "inputs changed" in checked(op, lambda data: data[1]["scale"].zero_()).reason


def test_a_changed_helper_is_another_version(folder: Path) -> None:
    before = source_of(folder, "gpumode")
    (folder.parent / "shared.py").write_text("def factor():\n    return 4.0\n", encoding="utf-8")
    assert source_of(folder, "gpumode").digest != before.digest


def test_a_folder_without_a_problem_is_refused(folder: Path) -> None:
    (folder / "reference.py").write_text("def generate_input():\n    return ()\n", encoding="utf-8")
    with pytest.raises(UsageError, match=r"scaled_py: its reference\.py must define generate_input and ref_kernel"):
        custom.find(source_of(folder, "gpumode"))
    (folder / task_file.NAME).unlink()
    with pytest.raises(UsageError, match=re.escape("must be a folder of GPU MODE's with task.yml")):
        source_of(folder, "gpumode")


def test_a_problem_over_several_gpus_is_refused(folder: Path) -> None:
    (folder / task_file.NAME).write_text("multi_gpu: true\n" + TASK, encoding="utf-8")
    with pytest.raises(UsageError, match="scaled_py: a problem over several GPUs"):
        custom.find(source_of(folder, "gpumode"))


def test_inputs_may_be_dataclasses() -> None:
    @dataclass
    class Inner:
        weight: torch.Tensor

    @dataclass
    class Config:
        power: int
        inner: Inner

    leaves, structure = arguments.flattened([Config(2, Inner(torch.ones(3)))], "file")
    found = arguments.pattern_of(leaves, structure, arguments.Allocations()).arguments([torch.zeros(3)])
    assert found[0].power == 2
    assert found[0].inner.weight.sum() == 0
    with pytest.raises(UsageError, match="dicts and dataclasses; got object"):
        arguments.flattened([object()], "file")


def test_items_of_a_list() -> None:
    text = "tests:\n- {n: 1, deep: [1, 2], flag: True}\n- n: 2\n  name: plain\n  flag: false\nother:\n- {n: 3}\n"
    assert task_file.items(text, "tests") == [
        {"n": 1, "deep": [1, 2], "flag": True},
        {"n": 2, "name": "plain", "flag": False},
    ]
