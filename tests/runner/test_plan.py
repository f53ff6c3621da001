"""plan(): from a selection to the cases and implementations of each operation."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from suite import ops
from suite.core.errors import UsageError
from suite.hardware.device import Device
from suite.numerics.formats import DTYPES
from suite.problem.case import Case
from suite.runner.plan import plan, refuse_too_large, refuse_unknown_baseline
from suite.runner.selection import Selection

CPU, GPU = Device("cpu", name="CPU"), Device("cuda", 0, "GPU", (9, 0))
FLOAT8 = ("float8_e4m3fn",)


def cases(*operations: str, device: Device = CPU, available_bytes: int | None = None, **selection: Any) -> list[Case]:
    jobs = plan(Selection(operations, **selection), device, available_bytes)
    return [case for job in jobs for case in job.cases]


def test_without_filters_the_operations_default_cases_run() -> None:
    for name in ops.names():
        for device in (CPU, GPU):
            ranks = 2 if ops.over_ranks(name) else 1
            default = [replace(case, ranks=ranks) for case in ops.get(name).default_cases(device.type)]
            assert cases(name, device=device) == default
    assert {case.operation for case in cases("all")} == set(ops.names())
    assert cases("sigmoid", "sigmoid") == cases("sigmoid")


def test_the_number_of_ranks_is_that_of_the_selection_and_part_of_the_label() -> None:
    (case,) = cases("all_reduce", shapes=("N=5",), dtypes=("float32",), ranks=3)
    assert (case.ranks, case.label) == (3, "N=5,ranks=3")
    assert {case.ranks for case in cases("sum", "all_reduce", ranks=4)} == {1, 4}


def test_a_given_shape_runs_in_every_dtype_arithmetic_and_value_of_options_that_run_all() -> None:
    op = ops.get("attention")
    shape = "B=1,H=1,H_kv=1,S_q=2,S_k=3,D=64"
    sizes = (1, 1, 1, 2, 3, 64)
    assert cases("attention", shapes=(shape,)) == [
        op.case(sizes, dtype, causal=causal) for dtype in DTYPES for causal in (False, True)
    ]
    assert {(c.dtype, c.precision) for c in cases("matmul", shapes=("M=1,N=2,K=3",))} == {
        ("float32", "ieee"),
        ("float32", "tf32"),
        ("float16", "ieee"),
        ("bfloat16", "ieee"),
    }


def test_equal_shapes_are_one_case() -> None:
    assert len(cases("vector_add", shapes=("N=100", "N=0100"), dtypes=("float32",))) == 1


def test_a_switch_chooses_among_cases_and_values_replace_each_other() -> None:
    attention, matmul = ops.get("attention"), ops.get("matmul")
    defaults = attention.default_cases("cuda")
    causal = [case for case in defaults if case.option("causal")]
    assert 0 < len(causal) < len(defaults)
    assert cases("attention", device=GPU, options={"causal": (True,)}) == causal
    assert cases("matmul", options={"layout": ("nt", "nn"), "causal": ()}) == [
        matmul.with_options(case, layout=layout) for case in matmul.default_cases("cpu") for layout in ("nt", "nn")
    ]
    both = cases("attention", "matmul", options={"causal": (True,), "layout": ("tt",)})
    assert {case.options for case in both} == {(("causal", True),), (("layout", "tt"),)}


def test_inputs_are_chosen_by_name_at_their_own_sizes_or_at_given_ones() -> None:
    op = ops.get("matmul")
    usual = [case for name in ("strided", "nan") for case in op.cases(name, "cpu") if case.dtype in DTYPES]
    assert cases("matmul", inputs=("nan", "strided")) == usual
    given = cases(
        "matmul", inputs=("nan",), shapes=("M=2,N=3,K=4",), dtypes=("bfloat16",), options={"layout": ("nt", "tn")}
    )
    assert given == [op.case((2, 3, 4), "bfloat16", layout=layout, inputs="nan") for layout in ("nt", "tn")]
    assert cases("matmul", inputs=("normal",)) == op.default_cases("cpu")
    of_attention = {"attention", "attention_grad", "paged_attention"}
    assert {case.operation for case in cases("all", inputs=("empty_rows",))} == of_attention
    assert all(case.option("causal") for case in cases("attention", inputs=("empty_rows",)))


def test_float8_comes_by_name_in_its_own_precisions_and_layout() -> None:
    op = ops.get("matmul")
    found = cases("matmul", dtypes=FLOAT8)
    assert found == op.plain_cases("cpu", FLOAT8)[-2:]
    assert [(case.precision, case.option("layout")) for case in found] == [("promoted", "nt"), ("fast", "nt")]
    (case,) = cases("matmul", dtypes=FLOAT8, shapes=("M=3,N=5,K=7",), precisions=("fast",), options={"layout": ("tt",)})
    assert case == op.case((3, 5, 7), *FLOAT8, "fast", layout="tt")
    assert op.bytes(case) == 3 * 7 + 7 * 5 + 2 * 3 * 5
    (case, _) = cases("matmul", dtypes=FLOAT8, inputs=("nan",))
    assert case == op.case((33, 65, 34), *FLOAT8, inputs="nan")
    assert {case.dtype for case in cases("matmul", inputs=("exact_sums",))} == set(FLOAT8)
    assert {case.precision for case in cases("matmul", dtypes=FLOAT8, sweep=True)} == {"promoted"}


def test_all_inputs_are_those_that_the_device_can_hold() -> None:
    families = ops.get("sigmoid").families
    telling = {each.inputs for each in ops.get("sigmoid").all_telling}
    assert {case.inputs for case in cases("sigmoid", inputs=("all",))} == (families.keys() | telling) - {"huge"}
    everything = cases("sigmoid", inputs=("all",), device=GPU)
    assert {case.inputs for case in everything} == families.keys() | telling
    fitting = cases("sigmoid", inputs=("all",), device=GPU, available_bytes=2**32)
    assert 0 < len(fitting) < len(everything)
    assert "huge" not in {case.inputs for case in fitting}


def test_telling_cases_are_rows_where_they_are_asked_for_and_part_of_all() -> None:
    op = ops.get("matmul")
    found = cases("matmul", inputs=("telling",))
    arithmetics = (("float32", "ieee"), ("float32", "tf32"), ("float16", "ieee"), ("bfloat16", "ieee"))
    telling = [[*op.telling_cases(*each).values()] for each in arithmetics]
    assert found[: len(telling[0])] == telling[0]
    assert len(found) == sum(map(len, telling)) > 3 * len(op.all_telling)
    assert set(found) <= set(cases("matmul", inputs=("all",)))
    float8 = cases("matmul", inputs=("telling",), dtypes=FLOAT8)
    assert {case.precision for case in float8} == {"promoted", "fast"}


def test_inputs_may_be_layouts_and_several_families_at_once() -> None:
    found = cases("layer_norm", inputs=("eps+stepped/dense/misaligned",), shapes=("M=9,N=33",))
    assert {case.label for case in found} == {"M=9,N=33,inputs=eps+stepped/dense/misaligned"}
    assert {case.dtype for case in found} == set(DTYPES)
    assert [case.dims for case in cases("sum", inputs=("transposed+nan",))]
    with pytest.raises(UsageError, match="--inputs: unknown 'nan\\+sideways'"):
        cases("sum", inputs=("nan+sideways",))


def test_rows_need_them_unless_inputs_are_asked_for() -> None:
    assert Selection(("matmul",)).telling
    assert not Selection(("matmul",), inputs=("none",)).telling
    assert not Selection(("matmul",), inputs=("nan",)).telling
    assert cases("matmul", inputs=("none",)) == cases("matmul")
    assert cases("matmul", sweep=True, inputs=("none",)) == cases("matmul", sweep=True)


def test_a_sweep_runs_the_sizes_asked_for() -> None:
    batches = {"sweep": True, "shapes": ("M=1,256,8192,N=K=4096",)}
    for device in (CPU, GPU):
        assert [case.shape[0] for case in cases("matmul", device=device, **batches)] == [1, 256, 8192]
    assert {case.dtype for case in cases("matmul", **batches)} == {"float32"}


def test_a_sweep_runs_the_operations_own_sizes() -> None:
    op = ops.get("matmul")
    found = cases("matmul", device=GPU, sweep=True)
    assert [case.shape for case in found] == list(op.sweep)
    assert {case.dtype for case in found} == {"float32"}
    assert 0 < len(cases("matmul", sweep=True, dtypes=("bfloat16",))) < len(found)
    causal = cases("attention", device=GPU, sweep=True, options={"causal": (True,)})
    assert [case.options for case in causal] == [(("causal", True),)] * len(ops.get("attention").sweep)
    assert not any(case.options for case in cases("attention", device=GPU, sweep=True))


@pytest.mark.parametrize(
    ("operation", "selection", "complaint"),
    [
        (
            "sigmoid",
            {"inputs": ("nans",)},
            r"--inputs: unknown 'nans'; valid are normal, .*, huge, zeros, .*, telling, all, none; did you mean nan\?$",
        ),
        ("sigmoid", {"inputs": ("large_logits",)}, r"--inputs: unknown 'large_logits'; valid are"),
        ("sigmoid", {"inputs": ("huge",)}, r"--inputs huge: needs an NVIDIA GPU \(more than 2\^31 elements\); this is"),
        ("sigmoid", {"inputs": ("nan",), "sweep": True}, r"--sweep uses random normal inputs; leave out --inputs"),
        (
            "sigmoid",
            {"inputs": ("none", "nan")},
            r"--inputs none runs the default inputs alone; leave out",
        ),
        (
            "sigmoid",
            {"inputs": ("telling",), "shapes": ("N=9",)},
            r"--inputs telling has sizes of its own, so",
        ),
        ("sigmoid", {"inputs": ("nan",), "precisions": ("tf32",)}, r"no case left: sigmoid has no tf32 nan"),
        ("sigmoid", {"dtypes": FLOAT8}, r"no case left: sigmoid has no float8_e4m3fn; operations with .*: matmul"),
        ("matmul", {"options": {"causal": (False,)}}, r"--causal/--no-causal is not an option of matmul"),
        ("sigmoid", {"options": {"layout": ("nt",)}}, r"--layout is not an option of sigmoid"),
        ("matmul", {"options": {"layout": ("zz",)}}, r"--layout: unknown 'zz'; valid are nn, nt, tn, tt"),
    ],
)
def test_what_cannot_be_had_is_refused(operation: str, selection: dict[str, Any], complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        cases(operation, **selection)


def test_a_case_that_does_not_fit_is_refused() -> None:
    jobs = plan(Selection(("vector_add",), shapes=("N=1000",)), CPU)
    refuse_too_large(jobs, None, "here")
    refuse_too_large(jobs, 2**30, "here")
    with pytest.raises(UsageError, match=r"vector_add N=1000 float32 needs at least .* here has 0\.0 GiB"):
        refuse_too_large(jobs, 1000, "here")


def test_excluded_implementations_are_left_out_and_every_pattern_matches_one() -> None:
    chosen = plan(Selection(("sigmoid",), ("torch", "numpy", "jax*"), excluded=("jax*",)), CPU)
    assert [each.name for job in chosen for each in job.implementations] == ["torch", "numpy"]
    with pytest.raises(UsageError, match=r"--exclude 'nothing\*' matches none of torch"):
        plan(Selection(("sigmoid",), ("torch",), excluded=("nothing*",)), CPU)
    with pytest.raises(UsageError, match="--exclude torch leaves no implementation"):
        plan(Selection(("sigmoid",), ("torch",), excluded=("torch",)), CPU)


def test_a_baseline_is_one_of_the_implementations_of_the_run() -> None:
    jobs = plan(Selection(("sigmoid",), ("torch", "numpy")), CPU)
    refuse_unknown_baseline(jobs, "numpy")
    with pytest.raises(UsageError, match="--baseline 'jax' is none of the implementations of this run: torch, numpy"):
        refuse_unknown_baseline(jobs, "jax")


def test_operations_may_be_chosen_by_pattern() -> None:
    assert {case.operation for case in cases("mat*[dl]")} == {"matrix_add", "matmul"}
    with pytest.raises(UsageError, match=r"unknown operation 'x\*'; there are vector_add"):
        plan(Selection(("x*",)), CPU)


def test_several_shapes_of_one_text_are_cases_each_once() -> None:
    found = cases("matmul", shapes=("M=N=8,K=1,2", "8", "8"), dtypes=("float16",))
    assert [case.shape for case in found] == [(8, 8, 1), (8, 8, 2), (8, 8, 8)]
