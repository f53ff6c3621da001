"""Operations and their cases: sizes by name, flops and bytes, reproducible inputs."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from suite import frameworks, ops
from suite.core.errors import UsageError
from suite.implementations import builtin
from suite.numerics.formats import DTYPES
from suite.problem.case import Case
from suite.runner import plan as select

CPU = torch.device("cpu")
FAMILIES = [(name, family) for name in ops.names() for family in ops.get(name).families]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("M=512,N=512", "missing K"),
        ("M=512,N=512,K=512,X=3", "unknown dimension 'X'"),
        ("M=512,N=512,K=-0x1", "K='-0x1' is not a whole number"),
        ("M=512,N=-5,K=512", "N=-5 must be at least 0"),
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


@pytest.mark.parametrize(("name", "family"), FAMILIES)
def test_a_family_is_one_line_and_draws_what_its_cases_say(name: str, family: str) -> None:
    op = ops.get(name)
    kind = op.families[family]
    assert "\n" not in kind.about
    assert 10 < len(kind.about) < 100
    cases = op.cases(family, "cuda" if kind.needs_gpu else "cpu")
    assert len({(case.label, case.dtype, case.precision) for case in cases}) == len(cases) > 0
    assert [Case.from_json(case.to_json()) for case in cases] == cases
    if kind.needs_gpu:
        counts = [max(map(math.prod, (op.output_shape(case), *op.operands(case)))) for case in cases]
        assert min(counts) > 2**31
    if family != "normal":
        assert all(case.label.endswith(f",inputs={family}") for case in cases)
    for case in cases if not kind.needs_gpu else ():
        drawn, again, other = (op.make_inputs(case, seed, CPU) for seed in (1, 1, 2))
        operands = drawn[: len(op.operands(case))]
        assert tuple(x.shape for x in operands) == op.operands(case)
        assert {x.dtype for x in operands} == {getattr(torch, case.dtype)}
        assert all((x.dtype, x.shape) == (torch.float32, ()) for x in drawn[len(operands) :])
        drawn, again, other = (tuple(x.double().nan_to_num(7.0) for x in each) for each in (drawn, again, other))
        assert all(torch.equal(x, y) for x, y in zip(drawn, again, strict=True))
        if sum(x.numel() for x in drawn) > 16:
            assert not all(torch.equal(x, y) for x, y in zip(drawn, other, strict=True))
        assert op.memory_bytes(case) >= op.bytes(case) >= math.prod(op.output_shape(case)) * case.output_bytes


@pytest.mark.parametrize("family", ["infinity", "nan", "signed_zero", "subnormal", "largest", "cancellation"])
@pytest.mark.parametrize("name", ops.names())
def test_a_family_takes_any_shape(name: str, family: str) -> None:
    op = ops.get(name)
    shapes = {
        "matmul": ((0, 3, 4), (3, 0, 4), (3, 4, 0), (1, 1, 1)),
        "matrix_add": ((0, 3), (3, 0), (1, 1)),
        "attention": ((0, 1, 1, 2, 3, 64), (1, 0, 0, 2, 3, 64), (1, 2, 1, 0, 3, 64), (1, 2, 1, 3, 0, 64)),
    }.get(name, ((0,), (1,)))
    for case in op.cases(family, "cpu", shapes) if family in op.families else ():
        inputs = op.make_inputs(case, 0, CPU)
        assert tuple(x.shape for x in inputs[: len(op.operands(case))]) == op.operands(case)
        pieces = list(op.truth(inputs, case))
        assert sum(piece.value.numel() for piece in pieces) == math.prod(op.output_shape(case))
        assert op.flops(case) >= 0


def test_views_lie_as_their_family_says() -> None:
    add = ops.get("vector_add")
    a, b = add.make_inputs(add.case((9,), inputs="strided"), 0, CPU)
    assert (a.stride(), b.stride()) == ((2,), (3,))
    assert torch.empty(0).set_(b.untyped_storage())[1::3].isnan().all()
    a, _ = add.make_inputs(add.case((9,), "float16", inputs="offset"), 0, CPU)
    assert a.is_contiguous()
    assert a.data_ptr() % 16 == 2
    a, b = add.make_inputs(add.case((9,), inputs="broadcast"), 0, CPU)
    assert (a.stride(), b.stride()) == ((0,), (1,))
    matmul = ops.get("matmul")
    a, b = matmul.make_inputs(matmul.case((3, 4, 5), inputs="strided"), 0, CPU)
    assert (a.stride(), b.stride()) == ((10, 1), (24, 3))
    a, b = matmul.make_inputs(matmul.case((3, 4, 5), inputs="broadcast"), 0, CPU)
    assert (a.stride(), b.stride()) == ((0, 1), (4, 0))
    attention = ops.get("attention")
    q, k, v = attention.make_inputs(attention.case((1, 2, 2, 3, 4, 64), inputs="transposed"), 0, CPU)
    assert {x.stride()[1:] for x in (q, k, v)} == {(64, 128, 1)}


def test_repeated_elements_are_read_once() -> None:
    add = ops.get("vector_add")
    assert add.bytes(add.case((100,), inputs="broadcast")) == 4 * (1 + 100 + 100)
    matmul = ops.get("matmul")
    assert matmul.bytes(matmul.case((3, 4, 5), inputs="broadcast")) == 4 * (5 + 5 + 12)


def test_one_nan_reaches_what_depends_on_it_and_nothing_else() -> None:
    """By brute force: in float64, one element of the output at a time, from what it is made of."""
    op = ops.get("attention")
    for causal in (False, True):
        case = op.case((3, 2, 1, 6, 9, 64), causal=causal, inputs="nan")
        q, k, v = op.make_inputs(case, 0, CPU)
        assert [int(x.isnan().sum()) for x in (q, k, v)] == [1, 1, 1]
        for truth in op.truth((q, k, v), case):
            b, h = (index.start for index in truth.index[:2])
            for i in range(6):
                seen = i + 9 - 6 + 1 if causal else 9
                depends = q[b, h, i].isnan().any() | k[b, 0, :seen].isnan().any() | v[b, 0, :seen].isnan().any(dim=0)
                row = i - truth.index[2].start
                if 0 <= row < truth.value.shape[2]:
                    assert torch.equal(truth.value[0, 0, row].isnan(), depends.expand(64))
    matmul = ops.get("matmul")
    case = matmul.case((7, 8, 9), inputs="nan")
    a, b = matmul.make_inputs(case, 0, CPU)
    (truth,) = matmul.truth((a, b), case)
    assert torch.equal(truth.value.isnan(), a.isnan().any(dim=1)[:, None] | b.isnan().any(dim=0))


def chosen(*operations: str, device_type: str = "cpu", **options: object) -> list[Case]:
    return [case for job in select.jobs(operations, device_type=device_type, **options) for case in job.cases]


def test_inputs_are_chosen_by_name_at_their_own_sizes_or_at_given_ones() -> None:
    op = ops.get("matmul")
    usual = [case for name in ("strided", "nan") for case in op.cases(name, "cpu") if case.dtype in DTYPES]
    assert chosen("matmul", inputs=["nan", "strided"]) == usual
    given = chosen("matmul", inputs=["nan"], shapes=["M=2,N=3,K=4"], dtypes=["bfloat16"], layouts=["nt", "tn"])
    assert given == [op.case((2, 3, 4), "bfloat16", layout=layout, inputs="nan") for layout in ("nt", "tn")]
    assert chosen("matmul", inputs=["normal"]) == op.default_cases("cpu")
    assert {case.operation for case in chosen("all", inputs=["empty_rows"])} == {"attention"}
    assert all(case.causal for case in chosen("attention", inputs=["empty_rows"]))


def test_float8_comes_by_name_in_its_own_precisions_and_layout() -> None:
    op = ops.get("matmul")
    cases = chosen("matmul", dtypes=["float8_e4m3fn"])
    assert cases == op.plain_cases("cpu", ["float8_e4m3fn"])[-2:]
    assert [(case.precision, case.layout) for case in cases] == [("promoted", "nt"), ("fast", "nt")]
    (case,) = chosen("matmul", dtypes=["float8_e4m3fn"], shapes=["M=3,N=5,K=7"], precisions=["fast"], layouts=["tt"])
    assert case == op.case((3, 5, 7), "float8_e4m3fn", "fast", layout="tt")
    assert op.bytes(case) == 3 * 7 + 7 * 5 + 2 * 3 * 5
    (case, _) = chosen("matmul", dtypes=["float8_e4m3fn"], inputs=["nan"])
    assert case == op.case((33, 65, 34), "float8_e4m3fn", inputs="nan")
    assert {case.dtype for case in chosen("matmul", inputs=["exact_sums"])} == {"float8_e4m3fn"}
    assert {case.precision for case in chosen("matmul", dtypes=["float8_e4m3fn"], sweep=True)} == {"promoted"}
    with pytest.raises(UsageError, match=r"no case left: sigmoid has no float8_e4m3fn; .* promoted and fast"):
        chosen("sigmoid", dtypes=["float8_e4m3fn"])


def test_all_inputs_are_those_that_the_device_can_hold() -> None:
    assert {case.inputs for case in chosen("sigmoid", inputs=["all"])} == set(ops.get("sigmoid").families) - {"huge"}
    everything = chosen("sigmoid", inputs=["all"], device_type="cuda")
    assert {case.inputs for case in everything} == set(ops.get("sigmoid").families)
    fitting = chosen("sigmoid", inputs=["all"], device_type="cuda", available_bytes=2**32)
    assert 0 < len(fitting) < len(everything)
    assert "huge" not in {case.inputs for case in fitting}


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"inputs": ["nans"]}, r"--inputs: unknown 'nans'; valid are normal, sizes, .*, huge, all$"),
        ({"inputs": ["large_logits"]}, r"--inputs: unknown 'large_logits'; valid are"),
        ({"inputs": ["huge"]}, r"--inputs huge: needs an NVIDIA GPU \(more than 2\^31 elements\); this is a CPU"),
        ({"inputs": ["nan"], "sweep": True}, r"--sweep has random normal inputs, so it takes no --inputs"),
        ({"inputs": ["nan"], "precisions": ["tf32"]}, r"no case left: sigmoid has no tf32 nan"),
    ],
)
def test_inputs_that_cannot_be_had_are_refused(options: dict[str, object], complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        chosen("sigmoid", **options)


def test_a_case_without_inputs_in_its_json_is_a_normal_one() -> None:
    case = ops.get("sigmoid").case((5,))
    old = {key: value for key, value in case.to_json().items() if key != "inputs"}
    assert Case.from_json(old) == case
    assert replace(case, inputs="nan").label == "N=5,inputs=nan"


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
    names = [implementation.name for implementation in builtin.implementations(name)]
    assert set(frameworks.names()) <= set(names)
    assert len(set(names)) == len(names)


def test_every_file_in_a_kernel_folder_is_an_implementation_of_an_operation() -> None:
    for framework in frameworks.names():
        for path in (ROOT / frameworks.get(framework).folder).glob("*.py"):
            helper = path.stem.startswith("_") or path.stem in ("build", "compiler")
            assert helper or builtin.operation_of(path.stem), f"{path} is named like no operation"
            source = path.read_text(encoding="utf-8")
            assert "import suite" not in source, f"{path}: kernel folders are leaves"
            assert "from suite" not in source, f"{path}: kernel folders are leaves"


def test_every_cuda_source_has_its_launcher() -> None:
    folder = ROOT / "cuda_ref"
    assert {path.stem for path in folder.glob("*.cu")} == {
        path.stem for path in folder.glob("*.py") if builtin.operation_of(path.stem)
    }


def test_memory_needed_is_at_least_inputs_and_output() -> None:
    for name in ops.names():
        op = ops.get(name)
        for case in op.default_cases("cuda"):
            assert op.memory_bytes(case) > op.bytes(case) >= math.prod(op.output_shape(case)) * case.element_bytes
