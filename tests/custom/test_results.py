"""References with results and inputs of any kind: what agrees with them, and what does not."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from custom_files import CPU, HEAD, operation

from suite.checking.check import CheckResult, check
from suite.checking.problem import Problem
from suite.core.errors import UsageError
from suite.custom.operation import CustomOperation
from suite.frameworks.torch import ADAPTER
from suite.implementations.reference import find


def checked(op: CustomOperation, entry: Callable[..., Any], index: int = 0) -> CheckResult:
    """The check of a kernel on a default case of the operation."""
    case = op.default_cases("cpu")[index]
    return check(lambda: op.callable_of(entry, case), ADAPTER, Problem(case, 0, CPU))


def reference_agrees(op: CustomOperation, index: int = 0) -> bool:
    case = op.default_cases("cpu")[index]
    found = check(find(case, "torch").function, ADAPTER, Problem(case, 0, CPU))
    assert found.reason == ""
    return found.agrees


WAVES = torch.exp(-2j * torch.pi / 7 * torch.outer(torch.arange(7), torch.arange(4)).double())
KERNELS: dict[str, tuple[str, Callable[..., Any], Callable[..., Any], str]] = {
    "a tuple": (
        "def reference(x):\n    return x * 2, x.sum(1)\n",
        lambda x: [x + x, x.sum(1)],
        lambda x: (x + x, x.sum(1) + 1e-3),
        r"value: at result 1\[\d\]",
    ),
    "a dict": (
        "def reference(x):\n    return {'double': x * 2, 'all': (x.sum(), None)}\n",
        lambda x: {"all": x.sum(), "double": x + x},
        lambda x: {"all": x.sum(), "double": x * 3},
        r"value: at double\[\d, \d\]",
    ),
    "a named tuple of numbers and integers": (
        "def reference(x):\n    return torch.topk(x, 2)\n",
        lambda x: tuple(each[:, :2] + 0 for each in torch.sort(x, descending=True)),
        lambda x: tuple(each[:, 1:3] + 0 for each in torch.sort(x, descending=True)),
        "expected",
    ),
    "integers": (
        "def reference(x):\n    return x.argmax(1)\n",
        lambda x: torch.topk(x, 1).indices[:, 0].clone(),
        lambda x: x.argmax(1) ^ (torch.arange(len(x)) == 2),
        r"value: at \[2\] got \d, expected \d$",
    ),
    "integers beyond 2^53": (
        "def reference(x):\n    return (x * 8).long() + 2**60\n",
        lambda x: (x * 8).to(torch.int64) + 2**60,
        lambda x: (x * 8).to(torch.int64) + 2**60 + 1,
        "got 1152921504606846",
    ),
    "booleans": ("def reference(x):\n    return x > 0\n", lambda x: ~(x <= 0), lambda x: x >= 1, "expected [01]"),
    "complex numbers": (
        "def reference(x):\n    return torch.complex(x, x * x)\n",
        lambda x: x + 1j * x.square(),
        lambda x: x - 1j * x.square(),
        r"at \[\d, \d, 1\]",
    ),
    "a spectrum, some of whose numbers are real": (
        "def reference(x):\n    return torch.fft.rfft(x[:4])\n",
        lambda x: (x[:4].to(WAVES.dtype) @ WAVES).to(torch.complex64),
        lambda x: torch.fft.rfft(x[:4]).conj().resolve_conj(),
        r"at \[\d, \d, 1\]",
    ),
    "float64": (
        "def reference(x):\n    return torch.cumsum(x.double(), 1)\n",
        lambda x: x.double().flip(1).sum(1, keepdim=True) - x.double().flip(1).cumsum(1).flip(1) + x.double(),
        lambda x: x.cumsum(1).double(),
        "value: at",
    ),
    "a view": (
        "def reference(x):\n    return x.mT[1:]\n",
        lambda x: x.mT[1:].contiguous(),
        lambda x: x.mT[:-1].contiguous(),
        "value: at",
    ),
    "its argument": ("def reference(x):\n    return x\n", lambda x: x, lambda x: -x, "value: at"),
}


@pytest.mark.parametrize("kind", KERNELS)
def test_results_of_any_kind_are_judged(kind: str, tmp_path: Path) -> None:
    text, right, wrong, reason = KERNELS[kind]
    inputs = "dtypes = ('float32',)\ndef inputs(case):\n    return [torch.randn(5, 7)]\n"
    op = operation(tmp_path, HEAD + inputs + text)
    assert reference_agrees(op)
    assert checked(op, right).reason == ""
    found = checked(op, wrong)
    assert not found.agrees
    assert re.search(reason, found.reason.split(";")[0]), found.reason


def test_a_dict_has_the_keys_of_the_reference(tmp_path: Path) -> None:
    text = "dtypes = ('float32',)\ndef inputs(case):\n    return [torch.randn(5, 7)]\n"
    op = operation(tmp_path, HEAD + text + "def reference(x):\n    return {'mean': x.mean(1), 'sum': x.sum(1)}\n")
    assert checked(op, lambda x: {"sum": x.sum(1), "mean": x.mean(1)}).reason == ""
    assert checked(op, lambda x: (x.mean(1), x.sum(1))).reason == ""
    with pytest.raises(ValueError, match="the results must have the keys mean, sum; got average, sum"):
        checked(op, lambda x: {"sum": x.sum(1), "average": x.mean(1)})


@pytest.mark.parametrize(
    ("value", "reference", "reason"),
    [
        (
            "torch.eye(3).to_sparse()",
            "x.to_dense()",
            "inputs are dense .* got sparse_coo float32 Tensor",
        ),
        (
            "torch.eye(3)",
            "x.to_sparse_csr()",
            "must be dense .* got sparse_csr float32 Tensor",
        ),
    ],
)
def test_sparse_tensors_are_refused_by_name(value: str, reference: str, reason: str, tmp_path: Path) -> None:
    text = f"def inputs(case):\n    return [{value}]\ndef reference(x):\n    return {reference}\n"
    with pytest.raises(UsageError, match=reason):
        reference_agrees(operation(tmp_path, HEAD + text))


INPUTS: dict[str, tuple[str, Callable[..., Any]]] = {
    "a tuple and a dict": (
        "    return [(torch.randn(3), torch.randn(3)), {'b': torch.randn(3), 'k': 2}, [1, 'x']]\n"
        "def reference(pair, more, rest):\n    return pair[0] * pair[1] + more['b'] * more['k'] + rest[0]\n",
        lambda pair, more, rest: pair[0] * pair[1] + more["b"] * more["k"] + rest[0],
    ),
    "none": ("    return []\ndef reference():\n    return torch.arange(9.0)\n", lambda: torch.arange(9.0)),
    "complex numbers": (
        "    return [torch.randn(9, dtype=torch.complex64)]\ndef reference(z):\n    return (z * z).real\n",
        lambda z: z.real * z.real - z.imag * z.imag,
    ),
    "expanded": (
        "    return [torch.randn(4, 1).expand(4, 6)]\ndef reference(x):\n    return x * 2\n",
        lambda x: (x + x).contiguous(),
    ),
}


@pytest.mark.parametrize("kind", INPUTS)
def test_inputs_of_any_kind_reach_the_kernel(kind: str, tmp_path: Path) -> None:
    text, kernel = INPUTS[kind]
    op = operation(tmp_path, HEAD + "dtypes = 'float32'\ndef inputs(case):\n" + text)
    assert reference_agrees(op)
    assert checked(op, kernel).reason == ""


TYPES = {
    "default types follow": ("torch.randn(4), torch.rand(4)", "bfloat16", ("bfloat16", "bfloat16")),
    "declared types stay": (
        "torch.randn(4).to(torch.float8_e4m3fn), torch.rand(4, dtype=torch.float32)",
        "bfloat16",
        ("float8_e4m3fn", "float32"),
    ),
    "a default beside a declared": (
        "torch.randn(4), torch.rand(4, dtype=torch.float32)",
        "float16",
        ("float16", "float32"),
    ),
    "one declared type follows": ("torch.randn(4).float(), torch.rand(4).float()", "float16", ("float16", "float16")),
    "float64 stays": ("torch.randn(4, dtype=torch.float64), torch.arange(4)", "float32", ("float64", "int64")),
}


@pytest.mark.parametrize("kind", TYPES)
def test_declared_types_of_inputs_are_kept(kind: str, tmp_path: Path) -> None:
    values, dtype, expected = TYPES[kind]
    text = f"dtypes = {dtype!r}\ndef inputs(case):\n    return [{values}]\n"
    op = operation(tmp_path, HEAD + text + "def reference(a, b):\n    return a.float() * b\n")
    case = op.default_cases("cpu")[0]
    assert tuple(str(each.dtype).removeprefix("torch.") for each in op.make_inputs(case, 0, CPU)) == expected


def test_a_result_has_the_cases_type_where_no_input_has_it(tmp_path: Path) -> None:
    text = (
        "dtypes = 'bfloat16'\ndef inputs(case):\n    return [torch.randn(64).to(torch.float8_e4m3fn), "
        "torch.rand(64, dtype=torch.float32)]\ndef reference(a, scale):\n    return a.float() * scale\n"
    )
    op = operation(tmp_path, HEAD + text)
    assert op.output_dtype(op.default_cases("cpu")[0]) == "bfloat16"
    assert reference_agrees(op)
    assert checked(op, lambda a, scale: (a.float() * scale).bfloat16()).reason == ""
    assert not checked(op, lambda a, scale: (a.float() * scale * 1.02).bfloat16()).agrees


OUTPUT = (
    "dtypes = 'float32'\ndef inputs(case):\n    return [torch.randn(9), torch.empty(9)]\n"
    "def reference(x, out):\n    out[...] = x * 2\n"
)


def test_an_argument_that_is_written_to_must_be_declared(tmp_path: Path) -> None:
    op = operation(tmp_path, HEAD + OUTPUT)
    with pytest.raises(Exception, match=r"writes to its argument out; .*declare mutates = \['out'\]"):
        op.facts(op.default_cases("cpu")[0])


def test_a_declared_output_is_a_result(tmp_path: Path) -> None:
    op = operation(tmp_path, HEAD + "mutates = ['out']\n" + OUTPUT)
    assert reference_agrees(op)
    assert checked(op, lambda x, out: out.copy_(x + x)).reason == ""
    assert checked(op, lambda x, out: None if out.copy_(x + x).numel() else out).reason == ""
    assert checked(op, lambda x, out: x + x).reason == ""
    assert "expected" in checked(op, lambda x, out: None).reason
    assert "inputs changed" in checked(op, lambda x, out: x.mul_(2)).reason


def test_an_argument_may_be_changed_in_place(tmp_path: Path) -> None:
    text = (
        "mutates = ['state']\ndtypes = 'float32'\ndef inputs(case):\n    return [torch.randn(9), torch.randn(9)]\n"
        "def reference(x, state):\n    state[...] = state + x\n    return state.sum()\n"
    )
    op = operation(tmp_path, HEAD + text)
    assert reference_agrees(op)
    assert op.outputs == ("result 0", "result 1")
    assert checked(op, lambda x, state: state.add_(x).sum()).reason == ""
    assert not checked(op, lambda x, state: (state + x).sum()).agrees


def test_a_name_of_mutates_is_a_parameter(tmp_path: Path) -> None:
    with pytest.raises(Exception, match="mutates must name parameters of x, out; got 'y'"):
        operation(tmp_path, HEAD + "mutates = 'y'\n" + OUTPUT)
