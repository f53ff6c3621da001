"""The parts that the bounds of all operations share: deviations, false alarms, roundings."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from suite.checking.judge import judge
from suite.numerics.bounds import FALSE_ALARM, deviations, rounding_limit, sum_shift, sum_variance
from suite.problem.truth import Truth
from validation import arithmetic_models as arithmetic


@given(st.integers(1, 10**10))
def test_the_allowed_deviation_grows_slowly_with_the_outputs(count: int) -> None:
    assert 5.3 < deviations(count) < 9


@given(st.sampled_from([1, 12_288, 2**20, 2**24]), st.floats(0.0, 10.0))
def test_sums_whose_partial_sums_wander_are_refused_as_rarely_as_is_said(count: int, total: float) -> None:
    assert arithmetic.refused(count, total) < FALSE_ALARM
    assert arithmetic.refused(2**31, total) < 3 * FALSE_ALARM


@settings(deadline=None, max_examples=50)
@given(st.lists(st.floats(-1e30, 1e30), min_size=1, max_size=8), st.floats(0.0, 1e30), st.floats(1.0, 10.0))
def test_a_larger_error_has_no_smaller_ratio(values: list[float], error: float, times: float) -> None:
    expected = torch.tensor(values, dtype=torch.float32).double()
    truths = [Truth((slice(0, len(values)),), expected, rounding_limit(expected, "float32"))]
    near, far = ((expected + e).float() for e in (error, error * times))
    ratios = [judge(x, truths, shape=tuple(x.shape), dtype="float32").error_ratio for x in (near, far)]
    assert ratios[0] <= ratios[1]


@pytest.mark.parametrize("depth", [None, 4, 16])
def test_a_sum_of_no_terms_has_no_error_and_more_terms_have_more(depth: int | None) -> None:
    total, spread = torch.ones(1, dtype=torch.float64), torch.ones(1, dtype=torch.float64)
    variances = [float(sum_variance(total, spread, terms, depth)) for terms in (0, 1, 10, 1000)]
    shifts = [float(sum_shift(total, terms, depth)) for terms in (0, 1, 10, 1000)]
    assert variances == sorted(variances)
    assert variances[0] == 0.0
    assert shifts == ([0.0] * 4 if depth is None else sorted(shifts))
