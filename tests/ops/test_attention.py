"""attention: its bound tells arithmetics apart; the causal mask, NaN and infinities."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from judging import CPU, RIGHT, judge_output, out_of_order

from suite import ops
from suite.checking.judge import judge
from suite.numerics.formats import DTYPES
from suite.problem.case import Case
from validation import arithmetic_models as arithmetic


def _softmax_attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, case: Case, shift: int = 0) -> torch.Tensor:
    s_q, s_k, d = case["S_q"], case["S_k"], case["D"]
    scores = q @ k.transpose(-1, -2) / math.sqrt(d)
    last = torch.arange(s_q)[:, None] + (s_k - s_q + shift if case.option("causal") else s_k)
    hidden = torch.arange(s_k)[None, :] > last
    return torch.softmax(scores.masked_fill(hidden, -math.inf), -1).masked_fill(hidden, 0.0) @ v


@pytest.mark.parametrize(("shape", "causal"), arithmetic.ATTENTION)
@pytest.mark.parametrize("dtype", DTYPES)
def test_attention(dtype: str, shape: tuple[int, int, int], causal: bool) -> None:
    plain = arithmetic.attention_case(shape, dtype, causal)
    draws = (plain, ops.get("attention").second_case(plain))
    assert draws[0] != draws[1]
    for name, settings_ in arithmetic.right_attention(dtype).items():
        ratios = {f"{name}, {case.inputs}": arithmetic.attention_ratio(settings_, case) for case in draws}
        assert out_of_order(ratios, wrong=False) == {}
    for name, settings_ in arithmetic.wrong_attention(dtype).items():
        if shape[1] >= arithmetic.needs_keys(name):
            ratios = {name: max(arithmetic.attention_ratio(settings_, case) for case in reversed(draws))}
            assert out_of_order(ratios, wrong=True) == {}


@pytest.mark.parametrize(("shape", "causal"), arithmetic.ATTENTION)
def test_attention_of_float8(shape: tuple[int, int, int], causal: bool) -> None:
    case = arithmetic.attention_case(shape, arithmetic.FLOAT8, causal)
    for models, wrong in ((arithmetic.right_attention, False), (arithmetic.wrong_attention, True)):
        ratios = {name: arithmetic.attention_ratio(found, case) for name, found in models(arithmetic.FLOAT8).items()}
        assert out_of_order(ratios, wrong=wrong) == {}


@settings(deadline=None, max_examples=30)
@given(st.integers(1, 9), st.integers(1, 9), st.sampled_from([8, 64]), st.booleans(), st.integers(-20, 20))
def test_powers_of_two_in_v_leave_the_ratio_of_attention(s_q: int, s_k: int, d: int, causal: bool, power: int) -> None:
    op = ops.get("attention")
    case = op.case((1, 1, 1, s_q, s_k, d), causal=causal)
    q, k, v = op.make_inputs(case, 0, CPU)
    ratios = []
    for values in (v, v * 2.0**power):
        output = _softmax_attention(q, k, values, case)
        truths = op.truth((q, k, values), case)
        ratios.append(judge(output, truths, shape=output.shape, dtype="float32").error_ratio)
    assert ratios[0] == pytest.approx(ratios[1], rel=1e-6), "ratios differ by float64's roundings"
    assert ratios[0] < RIGHT


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_causal_mask_off_by_one_is_wrong(dtype: str) -> None:
    op = ops.get("attention")
    case = op.case((1, 2, 2, 96, 200, 64), dtype, causal=True)
    inputs = op.make_inputs(case, 0, CPU)
    q, k, v = (x.double() for x in inputs)
    assert judge_output(op, case, _softmax_attention(q, k, v, case).to(inputs[0].dtype)).agrees
    assert not judge_output(op, case, _softmax_attention(q, k, v, case, -1).to(inputs[0].dtype)).agrees


def test_causal_attention_is_aligned_to_the_last_key_and_empty_rows_are_zero() -> None:
    op = ops.get("attention")
    case = op.case((1, 1, 1, 5, 3, 64), causal=True)
    inputs = op.make_inputs(case, 0, CPU)
    (piece,) = op.truth(inputs, case)
    assert torch.equal(piece.value[0, 0, :2], torch.zeros(2, 64, dtype=torch.float64))
    assert torch.equal(piece.value[0, 0, 2], inputs[2][0, 0, 0].double())
    assert op.flops(case) == 4 * 64 * (1 + 2 + 3)
    output = _softmax_attention(*inputs, case)
    assert judge_output(op, case, output).agrees
    output[0, 0, 0, 7] = 1e-45
    assert not judge_output(op, case, output).agrees, "zero means zero"


def test_attention_depends_on_nan_and_infinities_only_where_a_query_sees_them() -> None:
    op = ops.get("attention")
    case = op.case((1, 1, 1, 4, 4, 64), causal=True)
    q, k, v = op.make_inputs(case, 0, CPU)
    plain = next(iter(op.truth((q, k, v), case)))
    v[0, 0, 2, 5] = math.inf
    k[0, 0, 3, 0] = math.nan
    (piece,) = op.truth((q, k, v), case)
    assert bool(piece.value[0, 0, 3].isnan().all())
    assert float(piece.value[0, 0, 2, 5]) == math.inf
    others = torch.ones(1, 1, 4, 64, dtype=torch.bool)
    others[0, 0, 2, 5] = others[0, 0, 3] = False
    assert torch.equal(piece.value[others], plain.value[others])
    assert bool(piece.limit[others].isfinite().all())


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


@pytest.mark.parametrize(("s_q", "s_k"), [(1, 1), (5, 3), (3, 5), (7, 7), (1, 9), (9, 1)])
def test_causal_flops_count_the_visible_pairs(s_q: int, s_k: int) -> None:
    op = ops.get("attention")
    visible = sum(j <= i + s_k - s_q for i in range(s_q) for j in range(s_k))
    assert op.flops(op.case((1, 1, 1, s_q, s_k, 64), causal=True)) == 4 * 64 * visible
    assert op.flops(op.case((1, 1, 1, s_q, s_k, 64), causal=False)) == 4 * 64 * s_q * s_k


def test_bytes_count_each_array_once() -> None:
    op = ops.get("attention")
    assert op.bytes(op.case((1, 4, 2, 8, 16, 64), "float32")) == 4 * 64 * (2 * 4 * 8 + 2 * 2 * 16)


@pytest.mark.parametrize("family", ["infinity", "nan", "cancellation"])
def test_families_take_no_heads(family: str) -> None:
    op = ops.get("attention")
    for case in op.cases(family, "cpu", ((1, 0, 0, 2, 3, 64),)):
        inputs = op.make_inputs(case, 0, CPU)
        assert tuple(x.shape for x in inputs[:3]) == op.operands(case)
        assert list(op.truth(inputs, case)) == []
