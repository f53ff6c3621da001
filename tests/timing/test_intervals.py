"""Busy time as the union of intervals, and the assignment of activities to spans."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from suite.timing import (
    RecorderError,
    union_ns,
)
from suite.timing.intervals import MAX_OFFSET_NS, assign_spans, covered_ns

intervals = st.lists(st.tuples(st.integers(0, 200), st.integers(0, 50)).map(lambda p: (p[0], p[0] + p[1])), max_size=20)


@pytest.mark.parametrize(
    ("given_intervals", "expected"),
    [
        ([], 0),
        ([(5, 9)], 4),
        ([(0, 4), (10, 13)], 7),  # the gap does not count
        ([(0, 4), (4, 6)], 6),
        ([(0, 10), (2, 3), (9, 12)], 12),  # what overlaps counts once
        ([(7, 7)], 0),
    ],
)
def test_union(given_intervals: list[tuple[int, int]], expected: int) -> None:
    assert union_ns(given_intervals) == expected


@given(intervals)
def test_union_is_the_number_of_busy_nanoseconds(given_intervals: list[tuple[int, int]]) -> None:
    busy = {ns for start, end in given_intervals for ns in range(start, end)}
    assert union_ns(given_intervals) == len(busy)


@given(intervals, st.randoms())
def test_union_bounds_and_order(given_intervals: list[tuple[int, int]], rng: random.Random) -> None:
    union = union_ns(given_intervals)
    lengths = [end - start for start, end in given_intervals]
    assert max(lengths, default=0) <= union <= sum(lengths)
    shuffled = rng.sample(given_intervals, len(given_intervals))
    assert union_ns(shuffled) == union
    assert union_ns([(start + 1000, end + 1000) for start, end in given_intervals]) == union


@given(intervals)
def test_what_each_interval_adds_to_those_before_it(given_intervals: list[tuple[int, int]]) -> None:
    ordered = sorted(given_intervals)
    starts, ends = np.array(ordered, np.int64).reshape(-1, 2).T
    unions = [union_ns(ordered[:n]) for n in range(len(ordered) + 1)]
    assert covered_ns(starts, ends).tolist() == [after - before for before, after in itertools.pairwise(unions)]


def assigned(times: list[tuple[int, int]], edges: list[int]) -> list[int]:
    starts, ends = np.array(times, np.int64).reshape(-1, 2).T
    return assign_spans(starts, ends, np.array(edges, np.int64), lambda i: f"kernel {i}").tolist()


EDGES = [10_000, 20_000, 30_000, 40_000]


def test_a_start_decides_whatever_the_order() -> None:
    times = [(30_000, 39_000), (15_000, 20_000), (22_000, 29_000), (10_000, 12_000), (19_999, 19_999)]
    assert assigned(times, EDGES) == [2, 0, 1, 0, 0]


def test_an_end_may_be_as_late_as_the_conversion_of_clocks_is_wrong() -> None:
    assert assigned([(15_000, 20_000 + MAX_OFFSET_NS)], EDGES) == [0]
    with pytest.raises(RecorderError, match=r"kernel 0 was still running 5.0 us after span 0"):
        assigned([(15_000, 20_001 + MAX_OFFSET_NS)], EDGES)


@pytest.mark.parametrize(
    ("times", "edges", "message"),
    [
        ([(15_000, 16_000), (35_000, 52_300)], EDGES, r"kernel 1 was still running 12.3 us after span 2"),
        ([(50_000, 51_000)], EDGES, r"kernel 0 ran outside every span, 10.0 us after span 2: .* did not wait"),
        ([(40_000, 41_000)], EDGES, r"0.0 us after span 2"),
        ([(9_900, 15_000)], EDGES, r"0.1 us before span 0"),
        ([(15_000, 16_000)], [], r"no spans"),
        ([(15_000, 16_000)], [10_000], r"no spans"),
        ([(12_000, 11_000)], EDGES, r"no valid times"),
        ([(0, 0)], EDGES, r"no valid times"),
        ([], [10_000, 20_000, 19_000], r"clock ran backwards: span 1 is \[20000, 19000\] ns"),
    ],
)
def test_assign_refuses(times: list[tuple[int, int]], edges: list[int], message: str) -> None:
    with pytest.raises(RecorderError, match=message):
        assigned(times, edges)


@given(
    st.lists(st.integers(0, 60), min_size=2, max_size=8).map(sorted),
    st.lists(st.tuples(st.integers(-1, 70), st.integers(-1, MAX_OFFSET_NS + 30)).map(lambda p: (p[0], p[0] + p[1]))),
)
def test_assign_finds_the_one_span_or_refuses(edges: list[int], times: list[tuple[int, int]]) -> None:
    spans = list(itertools.pairwise(edges))
    fits = [
        [i for i, (opened, closed) in enumerate(spans) if opened <= start < closed and end <= closed + MAX_OFFSET_NS]
        for start, end in times
    ]
    if all(fits) and all(0 < start <= end for start, end in times):
        assert [[i] for i in assigned(times, edges)] == fits
    else:
        with pytest.raises(RecorderError):
            assigned(times, edges)
