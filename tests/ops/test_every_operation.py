"""Every operation: declarations, default cases, families of inputs, reproducible inputs, flops and bytes."""

from __future__ import annotations

import math
import random
import subprocess
import sys

import pytest
import torch
from judging import CPU

from suite import frameworks, ops
from suite.core.errors import UsageError
from suite.core.paths import ROOT
from suite.implementations import builtin
from suite.problem.case import Case
from suite.processes.codec import from_json, to_json

FAMILIES = [(name, family) for name in ops.names() for family in ops.get(name).families]
each_operation = pytest.mark.parametrize("name", ops.names())


def test_an_unknown_operation_names_the_nearest_or_else_all() -> None:
    with pytest.raises(UsageError, match=r"operation 'matmull'; did you mean matmul or int4_matmul\? `.* list`"):
        ops.get("matmull")
    with pytest.raises(UsageError, match=rf"unknown operation 'zz'; there are {', '.join(ops.names())}, or all"):
        ops.get("zz")


def test_names_and_options_are_read_without_importing_a_framework() -> None:
    code = "import sys; from suite import ops; print([ops.options(name) for name in ops.names()])\n"
    code += "print(sorted({'torch', 'jax', 'triton', 'numpy'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


@each_operation
def test_declarations_are_literals_and_distinct(name: str) -> None:
    op = ops.get(name)
    assert ops.options(name) == op.options
    assert (ops.rank(name), ops.group(name), ops.over_ranks(name)) == (
        op.rank,
        getattr(op, "group", ops.OTHER),
        op.over_ranks,
    )
    assert [ops.rank(other) for other in ops.names()].count(op.rank) == 1
    for option in op.options:
        assert len(set(option.values)) == len(option.values) > 1
        assert option.values == (False, True) or not option.is_switch
        assert "\n" not in option.about
    for kind in op.families.values():
        for option_name, values in kind.options.items():
            (option,) = (option for option in op.options if option.name == option_name)
            assert all(map(option.accepts, values))


@pytest.mark.parametrize("device_type", ["cpu", "cuda"])
@each_operation
def test_default_cases_are_distinct_and_survive_json(name: str, device_type: str) -> None:
    op = ops.get(name)
    cases = op.default_cases(device_type)
    assert len(set(cases)) == len(cases)
    assert {case.dtype for case in cases} == set(op.dtypes)
    assert [from_json(Case, to_json(case)) for case in cases] == cases
    keys = {(case.label, case.dtype, case.precision) for case in cases}
    assert len(keys) == len(cases), "the columns of a row tell its case from every other"


@each_operation
def test_the_same_seed_gives_the_same_inputs_and_another_seed_others(name: str) -> None:
    op = ops.get(name)
    case = op.default_cases("cpu")[0]
    first, again, other = (op.make_inputs(case, seed, CPU) for seed in (7, 7, 8))
    assert all(torch.equal(x, y) for x, y in zip(first, again, strict=True))
    drawn = [(x, y) for x, y in zip(first, other, strict=True) if x.is_floating_point() or len(x.unique()) > 1]
    assert drawn, "the equal lengths of sequences are no random numbers"
    assert not any(torch.equal(x, y) for x, y in drawn)


@pytest.mark.parametrize(("name", "family"), FAMILIES)
def test_a_family_is_one_line_and_draws_what_its_cases_say(name: str, family: str) -> None:
    op = ops.get(name)
    kind = op.families[family]
    assert "\n" not in kind.about
    assert 10 < len(kind.about) < 100
    cases = op.cases(family, "cuda" if kind.needs_gpu else "cpu")
    assert len({(case.label, case.dtype, case.precision) for case in cases}) == len(cases) > 0
    assert [from_json(Case, to_json(case)) for case in cases] == cases
    if kind.needs_gpu:
        counts = [max(map(math.prod, (op.output_shape(case), *op.operands(case)))) for case in cases]
        assert min(counts) > 2**31
    if family != "normal":
        assert all(case.label.endswith(f",inputs={family}") for case in cases)
    for case in cases if not kind.needs_gpu else ():
        drawn, again, other = (op.make_inputs(case, seed, CPU) for seed in (1, 1, 2))
        operands = drawn[: len(op.operands(case))]
        assert tuple(x.shape for x in operands) == op.operands(case)
        assert tuple(x.dtype for x in operands) == tuple(getattr(torch, each) for each in op.operand_dtypes(case))
        assert all((x.dtype, x.shape) == (torch.float32, ()) for x in drawn[len(operands) :])
        drawn, again, other = (tuple(x.double().nan_to_num(7.0) for x in each) for each in (drawn, again, other))
        assert all(torch.equal(x, y) for x, y in zip(drawn, again, strict=True))
        if sum(x.numel() for x in drawn) > 16:
            assert not all(torch.equal(x, y) for x, y in zip(drawn, other, strict=True))
        assert op.memory_bytes(case) >= op.bytes(case) >= op.output_bytes(case) >= 0


@pytest.mark.parametrize("family", ["infinity", "nan", "signed_zero", "subnormal", "largest", "cancellation"])
@each_operation
def test_a_family_takes_any_shape(name: str, family: str) -> None:
    op = ops.get(name)
    shapes = (*op.families["empty"].shapes, op.ragged[0])
    for case in op.cases(family, "cpu", shapes) if family in op.families else ():
        inputs = op.make_inputs(case, 0, CPU)
        assert tuple(x.shape for x in inputs[: len(op.operands(case))]) == op.operands(case)
        pieces = list(op.truth(inputs, case))
        assert sum(piece.value.numel() for piece in pieces) == math.prod(op.output_shape(case))
        assert op.flops(case) >= 0


@each_operation
def test_a_random_shape_is_valid(name: str) -> None:
    op, source = ops.get(name), random.Random(0)
    for _ in range(50):
        shape = op.random_shape(lambda: source.randint(0, 70))
        assert op.parse_shapes(",".join(f"{dim}={size}" for dim, size in zip(op.dims, shape, strict=True))) == [shape]


@each_operation
def test_every_operation_has_one_implementation_of_each_framework(name: str) -> None:
    names = [implementation.name for implementation in builtin.implementations(name)]
    assert set(frameworks.names()) - ({"numpy"} if ops.over_ranks(name) else set()) <= set(names)
    assert len(set(names)) == len(names)


@each_operation
def test_memory_needed_is_at_least_inputs_and_output(name: str) -> None:
    op = ops.get(name)
    for case in op.default_cases("cuda"):
        assert op.memory_bytes(case) > op.bytes(case) >= op.output_bytes(case)
