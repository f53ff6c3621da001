"""The offset between device times and the recorder's clock, estimated from a batch of activities."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from suite.timing.intervals import assign_spans, clock_offset

Sample_ns = tuple[tuple[int, int, int], list[tuple[int, int]], int]
"""One sample: launch, length and completion delay of the preparation; (gap, length) of the call's kernels; and the
completion delay of the call. In ns."""

samples_ns = st.tuples(
    st.tuples(st.integers(2_000, 15_000), st.integers(1_000, 60_000), st.integers(2_500, 20_000)),
    st.lists(st.tuples(st.integers(2_000, 9_000), st.integers(1_000, 60_000)), min_size=1, max_size=3),
    st.integers(2_500, 20_000),
)


def timeline(samples: list[Sample_ns]) -> tuple[list[int], list[tuple[int, int]], list[int]]:
    """Edges, activities, and the span of each activity."""
    now = 10**9
    edges, times, spans = [now], [], []
    for (launch, length, wait), kernels, until in samples:
        for each, after in (([(launch, length)], wait), (kernels, until)):
            for gap, busy in each:
                times.append((now + gap, now + gap + busy))
                spans.append(len(edges) - 1)
                now = times[-1][1]
            now += after
            edges.append(now)
    return edges, times, spans


def corrected_offset(samples: list[Sample_ns], wrong_by: int, guess: int = 0) -> int:
    """`clock_offset`, after the assertion that it moves every activity into its span."""
    edges, times, spans = timeline(samples)
    starts, ends = np.array(times).T + wrong_by
    offset = clock_offset(starts, ends, np.array(edges), guess)
    assert assign_spans(starts, ends, np.array(edges) - offset).tolist() == spans
    return offset


@given(st.lists(samples_ns, min_size=1, max_size=20), st.integers(-3_000, 3_000))
def test_an_offset_is_corrected_and_stays(samples: list[Sample_ns], wrong_by: int) -> None:
    offset = corrected_offset(samples, wrong_by)
    assert corrected_offset(samples, wrong_by, guess=offset) == offset, "a known offset is kept"


@pytest.mark.parametrize("wrong_by", [-3_000, -1_300, 0, 1_300, 3_000])
@pytest.mark.parametrize("kernels", [1, 2, 3])
@pytest.mark.parametrize("count", [100, 197, 590])
def test_an_offset_of_a_large_batch_is_corrected(count: int, kernels: int, wrong_by: int) -> None:
    """Evictions are launched late and seen as complete early; small calls the other way round."""
    rng = random.Random(count)
    evict = [(rng.randint(10_000, 14_000), 50_000, rng.randint(3_000, 5_000)) for _ in range(count)]
    calls = [[(rng.randint(2_200, 3_000), rng.randint(1_000, 3_000)) for _ in range(kernels)] for _ in range(count)]
    offset = corrected_offset(
        list(zip(evict, calls, [rng.randint(3_000, 5_000) for _ in range(count)], strict=True)), wrong_by
    )
    if wrong_by == 0:
        assert offset == 0, "a correct clock is not changed"


def test_a_call_without_activities_does_not_change_the_offset() -> None:
    """An eviction that starts soon after the call is the activity that is most easily mistaken for the call's."""
    edges, times, now = [0], [], 10**9
    for soon, ghost in ((10_000, False), (4_000, True), (4_000, False)):
        for launch, length, wait in ((soon, 50_000, 4_000), (6_000, 0 if ghost else 3_000, 4_000)):
            times += [(now + launch, now + launch + length)] if length else []
            edges.append(now)
            now += launch + length + wait
    edges = [*edges[1:], now]
    starts, ends = np.array(times).T
    assert clock_offset(starts, ends, np.array(edges)) == 0
    assert assign_spans(starts, ends, np.array(edges)).tolist() == [0, 1, 2, 4, 5]


def test_no_activities_have_no_offset() -> None:
    none = np.empty(0, np.int64)
    assert clock_offset(none, none, np.array([1, 2])) == clock_offset(np.array([5]), np.array([6]), none) == 0
