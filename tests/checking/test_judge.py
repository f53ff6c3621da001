"""Verdicts: NaN and infinities, bounds, the form of a result, and what the reason says. A wrong result never passes."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from judging import CPU

from suite.checking import judge as judging_module
from suite.checking.judge import Verdict, _judge_piece, _ordinary, judge, judge_together
from suite.core.errors import SuiteError
from suite.problem.truth import Truth


def pieces(*values: float, limit: float = 1e-3) -> list[Truth]:
    value = torch.tensor(values, dtype=torch.float64)
    return [Truth((slice(0, len(values)),), value, torch.full_like(value, limit))]


def against(got: list[float], *expected: float, dtype: str = "float32", limit: float = 1e-3) -> Verdict:
    output = torch.tensor(got, dtype=getattr(torch, dtype))
    return judge(output, pieces(*expected, limit=limit), shape=(len(got),), dtype=dtype)


def test_outputs_with_the_same_bits_are_judged_once(monkeypatch: pytest.MonkeyPatch) -> None:
    count = []
    monkeypatch.setattr(judging_module, "_judge_piece", lambda *given: (count.append(1), _judge_piece(*given))[1])
    right, wrong = torch.tensor([1.0, 2.0]), torch.tensor([1.0, 3.0])
    outputs = [wrong, right, right.clone(), torch.tensor([1.0]), wrong.clone(), torch.tensor([1.0, 2.0005])]
    found = judge_together(outputs, pieces(1.0, 2.0), shape=(2,), dtype="float32")
    assert len(count) == 3
    assert [each.agrees for each in found] == [False, True, True, False, False, True]
    assert found == [judge(each, pieces(1.0, 2.0), shape=(2,), dtype="float32") for each in outputs]


def test_nan_and_infinities_must_stand_where_the_truth_has_them() -> None:
    inf, nan = math.inf, math.nan
    assert against([nan, inf, -inf, 1.0], nan, inf, -inf, 1.0).agrees
    assert against([1.0], nan).reason == "value: at [0] got 1, expected nan"
    assert against([nan], 1.0).reason == "not finite: at [0] got nan, expected 1 +- 0.001"
    assert against([-inf], inf).reason == "not finite: at [0] got -inf, expected inf"
    assert against([3e38], inf).reason.startswith("value: at [0] got 3")
    assert not against([inf], nan).agrees
    assert not against([nan], inf).agrees
    assert against([inf], 1.0).error_ratio == inf


def test_a_value_beyond_the_largest_number_is_infinite() -> None:
    assert against([math.inf], 1e39).agrees
    assert not against([-math.inf], 1e39).agrees
    assert not against([65504.0], 70000.0, dtype="float16").agrees, "saturated"
    for output in (65504.0, math.inf):
        assert against([output], 65519.0, dtype="float16", limit=24.0).agrees, "either, next to the boundary"


def test_what_is_not_finite_in_the_truth_hides_no_other_error() -> None:
    value = torch.tensor([math.nan, 1.0, math.inf], dtype=torch.float64)
    limit = torch.tensor([math.nan, 1e-3, math.inf], dtype=torch.float64)
    truths = [Truth((slice(0, 3),), value, limit)]
    for output, agrees in (([math.nan, 1.0, math.inf], True), ([math.nan, 1.01, math.inf], False)):
        assert judge(torch.tensor(output), truths, shape=(3,), dtype="float32").agrees is agrees


@pytest.mark.parametrize("limit", [math.nan, math.inf, -1.0])
def test_a_bound_that_is_not_a_number_fails_the_suite_not_the_kernel(limit: float) -> None:
    with pytest.raises(SuiteError, match="not a number"):
        against([5.0], 1.0, limit=limit)


def test_where_the_bound_is_zero_only_zero_is_right() -> None:
    assert against([-0.0], 0.0, limit=0.0).agrees
    assert not against([1e-45], 0.0, limit=0.0).agrees


def test_a_truth_must_cover_the_output() -> None:
    for truths in ([], pieces(1.0)):
        with pytest.raises(SuiteError, match="the output 2"):
            judge(torch.ones(2), truths, shape=(2,), dtype="float32")
    with pytest.raises(SuiteError, match="where the output has"):
        judge(torch.ones(1), pieces(1.0, 1.0), shape=(1,), dtype="float32")


@pytest.mark.parametrize(
    ("output", "reason"),
    [
        (torch.zeros(4, 2), "shape: the result is (4, 2), expected (2, 3)"),
        (torch.zeros(2, 3, dtype=torch.float64), "dtype: the result is float64, expected float32"),
        ([0.0, 0.0, 0.0], "type: the result is a list, not an array"),
        (torch.zeros(2, 3, device="meta"), "device: the result is on meta, expected cpu"),
        (torch.zeros(3, 2).T, "strides: the result has strides (1, 2), expected row-major without gaps"),
    ],
    ids=["shape", "dtype", "type", "device", "strides"],
)
def test_a_result_of_the_wrong_kind_is_wrong(output: torch.Tensor, reason: str) -> None:
    found = judge(output, [], shape=(2, 3), dtype="float32", device=CPU)
    assert not found.agrees
    assert found.error_ratio == math.inf
    assert found.reason == reason


@given(
    st.lists(
        st.tuples(st.floats(-(2.0**126), 2.0**126, width=32), st.floats(-2.0, 2.0), st.floats(1e-30, 1e3)),
        min_size=1,
        max_size=9,
    ),
    st.sampled_from(("float32", "bfloat16")),
)
def test_an_ordinary_piece_is_judged_like_any_other(elements: list[tuple[float, float, float]], dtype: str) -> None:
    """A piece with only finite numbers takes the fast path, with the same verdict as element by element."""
    value, off, limit = torch.tensor(elements, dtype=torch.float64).T
    output = (value + off * limit).to(getattr(torch, dtype))
    truth = Truth((slice(0, len(elements)),), value, limit)
    assert _ordinary(output, truth, dtype)
    found = _judge_piece(output, truth, dtype)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("suite.checking.judge._ordinary", lambda *_: False)
        assert _judge_piece(output, truth, dtype) == found


@pytest.mark.parametrize(
    ("got", "expected", "limit"),
    [
        (math.nan, 1.0, 1e-3),
        (math.inf, 1.0, 1e-3),
        (1.0, math.nan, 1e-3),
        (1.0, -math.inf, 1e-3),
        (1.0, 1.0, math.nan),
        (1.0, 1.0, math.inf),
        (1.0, 1.0, 0.0),
        (3.4e38, 3.4e38, 1e36),
        (-3.4e38, -3.4e38, 1e36),
    ],
)
def test_what_is_not_ordinary(got: float, expected: float, limit: float) -> None:
    truth = Truth((slice(0, 2),), *(torch.tensor([x, y]).double() for x, y in ((0.5, expected), (1e-3, limit))))
    assert not _ordinary(torch.tensor([0.5, got]), truth, "float32")
    assert _ordinary(torch.tensor([0.5]), replace(truth, value=truth.value[:1], limit=truth.limit[:1]), "float32")


def test_the_reason_shows_the_worst_element_and_counts_the_others() -> None:
    found = against([1.0, 1.5, 2.0], 1.0, 1.0, 1.0)
    assert found.reason == "value: at [2] got 2, expected 1 +- 0.001; 2 of 3 are wrong"
    assert found.error_ratio == pytest.approx(1000.0)


def test_a_compensated_sum_that_overflows_is_refused_with_the_reason() -> None:
    total = correction = torch.zeros(())
    for term in torch.full((4,), 3e38):
        shifted = term - correction
        new = total + shifted
        correction, total = (new - total) - shifted, new
    assert total.isnan()
    value = torch.tensor(math.inf, dtype=torch.float64)
    truth = Truth((), value, torch.zeros((), dtype=torch.float64))
    assert "leave out the correction of a compensated sum" in judge(total, [truth], shape=(), dtype="float32").reason
    assert judge(torch.tensor(math.inf), [truth], shape=(), dtype="float32").agrees


def test_judging_a_float64_result_leaves_it_as_it_is() -> None:
    """A NaN makes each element be judged by itself."""
    output = torch.tensor([math.nan, 2.0, 3.0], dtype=torch.float64)
    before = output.clone()
    judge(output, pieces(math.nan, 2.0, 3.5), shape=(3,), dtype="float64")
    assert torch.equal(output.nan_to_num(-1.0), before.nan_to_num(-1.0))
