"""Operations and their cases: sizes by name, flops and bytes, reproducible inputs."""

from __future__ import annotations

import math

import pytest
import torch

from suite import backends, ops
from suite.errors import UsageError
from suite.op import DTYPES, Case

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("M=512,N=512", "missing K"),
        ("M=512,N=512,K=512,X=3", "unknown dimension 'X'"),
        ("M=512,N=512,K=0", "K=0 must be at least 1"),
        ("M=512,N=-5,K=512", "N=-5 must be at least 1"),
        ("M=512,N=many,K=512", "N='many' is not a whole number"),
        ("M=512,N=1.5,K=512", "N='1.5' is not a whole number"),
        ("M=512,N=,K=512", "N='' is not a whole number"),
        ("M=512,M=512,N=1,K=1", "M is given twice"),
        ("512x512x512", "is not DIM=SIZE"),
        ("", "is not DIM=SIZE"),
        ("M=" + "9" * 30 + ",N=1,K=1", "is not a whole number"),
    ],
)
def test_a_shape_that_cannot_be_used_says_what_is_wrong(text: str, complaint: str) -> None:
    with pytest.raises(UsageError) as caught:
        ops.get("matmul").parse_shape(text)
    assert complaint in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_shape_is_read_in_any_order_and_with_spaces() -> None:
    assert ops.get("matmul").parse_shape(" K=3, M=1,N = 2") == (1, 2, 3)


def test_query_heads_must_be_a_multiple_of_key_heads() -> None:
    with pytest.raises(UsageError, match=r"H=6 must be a multiple of H_kv=4"):
        ops.get("attention").parse_shape("B=1,H=6,H_kv=4,S_q=8,S_k=8,D=64")


def test_an_unknown_operation_names_the_known_ones() -> None:
    with pytest.raises(
        UsageError, match=r"unknown operation 'matmull'.*vector_add, matrix_add, sigmoid, matmul, attention"
    ):
        ops.get("matmull")


@pytest.mark.parametrize("device_type", ["cpu", "cuda"])
@pytest.mark.parametrize("name", ops.names())
def test_default_cases_are_distinct_and_survive_json(name: str, device_type: str) -> None:
    cases = ops.get(name).default_cases(device_type)
    assert len(set(cases)) == len(cases)
    assert {case.dtype for case in cases} == set(DTYPES)
    assert [Case.from_json(case.to_json()) for case in cases] == cases
    keys = {(case.label, case.dtype, case.precision) for case in cases}
    assert len(keys) == len(cases), "the columns of a row tell its case from every other"


@pytest.mark.parametrize("name", ops.names())
def test_the_same_seed_gives_the_same_inputs_and_another_seed_others(name: str) -> None:
    op = ops.get(name)
    case = op.default_cases("cpu")[0]
    first, again, other = (op.make_inputs(case, seed, CPU) for seed in (7, 7, 8))
    assert all(torch.equal(x, y) for x, y in zip(first, again, strict=True))
    assert not any(torch.equal(x, y) for x, y in zip(first, other, strict=True))


def test_layouts_are_strides_and_not_copies() -> None:
    op = ops.get("matmul")
    a, b = op.make_inputs(op.case((4, 6, 5), layout="nt"), 0, CPU)
    assert (a.shape, a.stride()) == ((4, 5), (5, 1))
    assert (b.shape, b.stride()) == ((5, 6), (1, 5))


@pytest.mark.parametrize(("s_q", "s_k"), [(1, 1), (5, 3), (3, 5), (7, 7), (1, 9), (9, 1)])
def test_causal_flops_count_the_visible_pairs(s_q: int, s_k: int) -> None:
    op = ops.get("attention")
    visible = sum(j <= i + s_k - s_q for i in range(s_q) for j in range(s_k))
    assert op.flops(op.case((1, 1, 1, s_q, s_k, 64), causal=True)) == 4 * 64 * visible
    assert op.flops(op.case((1, 1, 1, s_q, s_k, 64), causal=False)) == 4 * 64 * s_q * s_k


def test_bytes_count_each_array_once() -> None:
    matmul = ops.get("matmul")
    assert matmul.bytes(matmul.case((2, 3, 5), "bfloat16")) == 2 * (2 * 5 + 5 * 3 + 2 * 3)
    attention = ops.get("attention")
    assert attention.bytes(attention.case((1, 4, 2, 8, 16, 64), "float32")) == 4 * 64 * (2 * 4 * 8 + 2 * 2 * 16)


@pytest.mark.parametrize("name", ops.names())
def test_every_operation_has_one_implementation_of_each_framework(name: str) -> None:
    names = [implementation.name for implementation in backends.implementations(name)]
    assert set(backends.backends()) <= set(names)
    assert len(set(names)) == len(names)


def test_every_file_in_a_kernel_folder_is_an_implementation_of_an_operation() -> None:
    for framework in backends.backends():
        for path in (backends.ROOT / backends.backend(framework).folder).glob("*.py"):
            helper = path.stem.startswith("_") or path.stem in ("build", "compiler")
            assert helper or backends.operation_of(path.stem), f"{path} is named like no operation"
            source = path.read_text(encoding="utf-8")
            assert "import suite" not in source, f"{path}: kernel folders are leaves"
            assert "from suite" not in source, f"{path}: kernel folders are leaves"


def test_every_cuda_source_has_its_launcher() -> None:
    folder = backends.ROOT / "cuda_ref"
    assert {path.stem for path in folder.glob("*.cu")} == {
        path.stem for path in folder.glob("*.py") if backends.operation_of(path.stem)
    }


def test_memory_needed_is_at_least_inputs_and_output() -> None:
    for name in ops.names():
        op = ops.get(name)
        for case in op.default_cases("cuda"):
            assert op.memory_bytes(case) > op.bytes(case) >= math.prod(op.output_shape(case)) * case.element_bytes
