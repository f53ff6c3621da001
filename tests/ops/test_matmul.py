"""matmul: its bound tells arithmetics apart; views, scales and sums of its families."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from judging import CPU, RIGHT, judge_output, out_of_order
from thinning import covering_parts, thorough_unless

from suite import ops
from suite.checking.judge import Verdict, judge
from suite.numerics.formats import DTYPES
from suite.ops.matmul import matmul_limit
from validation import arithmetic_models as arithmetic

KINDS = arithmetic.KINDS + arithmetic.FLOAT8_KINDS
SETS = [(*kind, k) for kind in KINDS for k in arithmetic.KS]
FEW = covering_parts([each for each in SETS if each[-1] != arithmetic.KS[-1]], lambda each: {each[:2], each[2]})
"""Each kind and each K, but the longest."""


@pytest.mark.parametrize(
    ("dtype", "precision", "k"), [pytest.param(*each, marks=thorough_unless(each in FEW)) for each in SETS]
)
def test_matmul(dtype: str, precision: str, k: int) -> None:
    right = arithmetic.right_products(dtype, precision)
    wrong = arithmetic.wrong_products(dtype, precision, k)
    for products, are_wrong in ((right, False), (wrong, True)):
        ratios = {name: arithmetic.matmul_ratio(product, k, dtype, precision) for name, product in products.items()}
        assert out_of_order(ratios, wrong=are_wrong) == {}


def test_sums_of_subnormal_numbers_are_rounded_to_their_spacing() -> None:
    op = ops.get("matmul")
    case = op.case((32, 32, 200))
    a, b = op.make_inputs(case, 0, CPU)
    a *= 2.0**-140
    output = torch.from_numpy(arithmetic.separate(a.double().numpy(), b.double().numpy()))
    verdict = judge(output, op.truth((a, b), case), shape=(32, 32), dtype="float32")
    assert 0.1 < verdict.error_ratio < RIGHT
    output[3, 5] += 100 * 2.0**-149
    assert not judge(output, op.truth((a, b), case), shape=(32, 32), dtype="float32").agrees


@pytest.mark.parametrize("precision", ["ieee", "tf32"])
def test_one_output_of_one_product_is_judged(precision: str) -> None:
    op = ops.get("matmul")
    case = op.case((1, 1, 1), "float32", precision)
    a, b = op.make_inputs(case, 0, CPU)
    assert judge_output(op, case, a @ b).error_ratio <= 2 / 3
    assert judge_output(op, case, (a @ b) * 1.01).error_ratio > 1


exponents = st.integers(-20, 20)


@settings(deadline=None, max_examples=50)
@given(
    st.integers(1, 5), st.integers(1, 5), st.integers(0, 40), st.sampled_from(arithmetic.KINDS), exponents, exponents
)
def test_powers_of_two_leave_the_ratio_of_a_product(
    m: int, n: int, k: int, kind: tuple[str, str], in_a: int, in_b: int
) -> None:
    op = ops.get("matmul")
    case = op.case((m, n, k), *kind)
    a, b = (x.to(torch.float32) for x in op.make_inputs(case, k, CPU))
    ratios = []
    for left, right in ((a, b), (a * 2.0**in_a, b * 2.0**in_b)):
        output = left.bfloat16().float() @ right
        truths = op.truth((left, right), replace(case, dtype="float32"))
        ratios.append(judge(output, truths, shape=(m, n), dtype="float32").error_ratio)
    assert ratios[0] == ratios[1]


@pytest.mark.parametrize("dtype", DTYPES)
def test_more_terms_outputs_and_spread_never_tighten_a_bound(dtype: str) -> None:
    def limit(value: float = 1.0, spread: float = 3.0, terms: int = 50, count: int = 1000) -> float:
        one = torch.tensor([value], dtype=torch.float64)
        return float(matmul_limit(one, one.new_tensor([spread**2]), terms, count, dtype, "ieee"))

    for name, values in {"spread": (1, 3, 9), "terms": (1, 2, 3, 50, 5000), "count": (1, 10**3, 10**9)}.items():
        limits = [limit(**{name: value}) for value in values]
        assert limits == sorted(limits)


@pytest.mark.parametrize("dtype", DTYPES)
def test_without_terms_only_zero_is_right(dtype: str) -> None:
    op = ops.get("matmul")
    case = op.case((2, 3, 0), dtype)
    output = torch.zeros(2, 3, dtype=getattr(torch, dtype))
    assert judge_output(op, case, output) == Verdict(True, 0.0, 0.0, 0.0)
    assert judge_output(op, case, -output).error_ratio == 0.0, "a zero of either sign"
    output[1, 1] = torch.finfo(output.dtype).smallest_normal * torch.finfo(output.dtype).eps
    assert output[1, 1] != 0
    assert not judge_output(op, case, output).agrees


def test_one_nan_reaches_its_row_or_column_and_nothing_else() -> None:
    op = ops.get("matmul")
    case = op.case((7, 8, 9), inputs="nan")
    a, b = op.make_inputs(case, 0, CPU)
    (truth,) = op.truth((a, b), case)
    assert torch.equal(truth.value.isnan(), a.isnan().any(dim=1)[:, None] | b.isnan().any(dim=0))


def test_bytes_count_each_array_once() -> None:
    op = ops.get("matmul")
    assert op.bytes(op.case((2, 3, 5), "bfloat16")) == 2 * (2 * 5 + 5 * 3 + 2 * 3)
