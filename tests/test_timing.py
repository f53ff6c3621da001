"""The timer: arithmetic on lists, the CUPTI recorder on a CUPTI made of Python, whole measurements on a fake clock."""

from __future__ import annotations

import ctypes
import itertools
import json
import math
import random
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from suite import hardware
from suite.timing import (
    Activity,
    Call,
    NoRecorderError,
    RecorderError,
    measure,
    median,
    median_interval,
    paired_ratio,
    union_ns,
)
from suite.timing.cupti_records import RECORD, Cupti, layouts
from suite.timing.energy import joules_per_call
from suite.timing.intervals import CLOCKS_NS, assign, clocks_apart, covered_ns
from suite.timing.recorder import Sample
from suite.timing.recorder_cupti import CuptiRecorder, _same_pace
from suite.timing.recorder_wall import WallRecorder
from suite.timing.sampling import Measurement
from suite.timing.stats import MIN_FOR_INTERVAL, half_width, interval_rank, next_look

# ---- union of intervals ----------------------------------------------------------------------------------------------

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


# ---- activities to spans ---------------------------------------------------------------------------------------------


def assigned(times: list[tuple[int, int]], edges: list[int]) -> list[int]:
    starts, ends = np.array(times, np.int64).reshape(-1, 2).T
    return assign(starts, ends, np.array(edges, np.int64), lambda i: f"kernel {i}").tolist()


EDGES = [10_000, 20_000, 30_000, 40_000]


def test_a_start_decides_whatever_the_order() -> None:
    times = [(30_000, 39_000), (15_000, 20_000), (22_000, 29_000), (10_000, 12_000), (19_999, 19_999)]
    assert assigned(times, EDGES) == [2, 0, 1, 0, 0]


def test_an_end_may_be_as_late_as_the_conversion_of_clocks_is_wrong() -> None:
    assert assigned([(15_000, 20_000 + CLOCKS_NS)], EDGES) == [0]
    with pytest.raises(RecorderError, match=r"kernel 0 was still running 5.0 us after span 0"):
        assigned([(15_000, 20_001 + CLOCKS_NS)], EDGES)


@pytest.mark.parametrize(
    ("times", "edges", "message"),
    [
        ([(15_000, 16_000), (35_000, 52_300)], EDGES, r"kernel 1 was still running 12.3 us after span 2"),
        ([(50_000, 51_000)], EDGES, r"kernel 0 ran outside every span, 10.0 us after span 2: .* did not wait"),
        ([(40_000, 41_000)], EDGES, r"0.0 us after span 2"),
        ([(9_900, 15_000)], EDGES, r"0.1 us before span 0"),
        ([(15_000, 16_000)], [], r"none"),
        ([(15_000, 16_000)], [10_000], r"none"),
        ([(12_000, 11_000)], EDGES, r"no valid times"),
        ([(0, 0)], EDGES, r"no valid times"),
        ([], [10_000, 20_000, 19_000], r"clock ran backwards: span 1 is \[20000, 19000\] ns"),
    ],
)
def test_assign_refuses(times: list[tuple[int, int]], edges: list[int], message: str) -> None:
    with pytest.raises(RecorderError, match=message):
        assigned(times, edges)


Sample_ns = tuple[tuple[int, int, int], list[tuple[int, int]], int]
"""A preparation: how long it takes to launch, runs, and takes to be seen as done; the call's kernels, each some time
after the one before; and until that is seen."""

samples_ns = st.tuples(
    st.tuples(st.integers(2_000, 15_000), st.integers(1_000, 60_000), st.integers(2_500, 20_000)),
    st.lists(st.tuples(st.integers(2_000, 9_000), st.integers(1_000, 60_000)), min_size=1, max_size=3),
    st.integers(2_500, 20_000),
)


def timeline(samples: list[Sample_ns]) -> tuple[list[int], list[tuple[int, int]], list[int]]:
    """Edges, activities, and the span of each."""
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


def brought_together(samples: list[Sample_ns], wrong_by: int, guess: int = 0) -> int:
    """`clocks_apart`, having seen that it brings every activity into its span."""
    edges, times, spans = timeline(samples)
    starts, ends = np.array(times).T + wrong_by
    apart = clocks_apart(starts, ends, np.array(edges), guess)
    assert assign(starts, ends, np.array(edges) - apart).tolist() == spans
    return apart


@given(st.lists(samples_ns, min_size=1, max_size=20), st.integers(-3_000, 3_000))
def test_clocks_that_are_apart_are_brought_together(samples: list[Sample_ns], wrong_by: int) -> None:
    apart = brought_together(samples, wrong_by)
    assert brought_together(samples, wrong_by, guess=apart) == apart, "known once, it stays"


@pytest.mark.parametrize("wrong_by", [-3_000, -1_300, 0, 1_300, 3_000])
@pytest.mark.parametrize("kernels", [1, 2, 3])
@pytest.mark.parametrize("count", [100, 197, 590])
def test_clocks_of_a_whole_batch_are_brought_together(count: int, kernels: int, wrong_by: int) -> None:
    """Evictions have much time to be launched and little to be seen as done; tiny calls the other way round."""
    rng = random.Random(count)
    evict = [(rng.randint(10_000, 14_000), 50_000, rng.randint(3_000, 5_000)) for _ in range(count)]
    calls = [[(rng.randint(2_200, 3_000), rng.randint(1_000, 3_000)) for _ in range(kernels)] for _ in range(count)]
    apart = brought_together(
        list(zip(evict, calls, [rng.randint(3_000, 5_000) for _ in range(count)], strict=True)), wrong_by
    )
    if wrong_by == 0:
        assert apart == 0, "what is right is left alone"


def test_a_call_without_activities_does_not_move_the_clocks() -> None:
    """An eviction that starts soon after it is the nearest to be taken for its own."""
    edges, times, now = [0], [], 10**9
    for soon, ghost in ((10_000, False), (4_000, True), (4_000, False)):
        for launch, length, wait in ((soon, 50_000, 4_000), (6_000, 0 if ghost else 3_000, 4_000)):
            times += [(now + launch, now + launch + length)] if length else []
            edges.append(now)
            now += launch + length + wait
    edges = [*edges[1:], now]
    starts, ends = np.array(times).T
    assert clocks_apart(starts, ends, np.array(edges)) == 0
    assert assign(starts, ends, np.array(edges)).tolist() == [0, 1, 2, 4, 5]


def test_clocks_of_nothing_are_not_apart() -> None:
    none = np.empty(0, np.int64)
    assert clocks_apart(none, none, np.array([1, 2])) == clocks_apart(np.array([5]), np.array([6]), none) == 0


@given(
    st.lists(st.integers(0, 60), min_size=2, max_size=8).map(sorted),
    st.lists(st.tuples(st.integers(-1, 70), st.integers(-1, CLOCKS_NS + 30)).map(lambda p: (p[0], p[0] + p[1]))),
)
def test_assign_finds_the_one_span_or_refuses(edges: list[int], times: list[tuple[int, int]]) -> None:
    spans = list(itertools.pairwise(edges))
    fits = [
        [i for i, (opened, closed) in enumerate(spans) if opened <= start < closed and end <= closed + CLOCKS_NS]
        for start, end in times
    ]
    if all(fits) and all(0 < start <= end for start, end in times):
        assert [[i] for i in assigned(times, edges)] == fits
    else:
        with pytest.raises(RecorderError):
            assigned(times, edges)


# ---- statistics ------------------------------------------------------------------------------------------------------

floats = st.floats(1e-3, 1e6, allow_nan=False)


@given(st.lists(floats, min_size=1, max_size=30))
def test_median_is_the_standard_librarys(values: list[float]) -> None:
    assert median(values) == pytest.approx(statistics.median(values))


def test_interval_needs_six() -> None:
    assert [median_interval([1.0] * n) for n in range(1, 6)] == [None] * 5
    assert median_interval([3.0, 1.0, 2.0, 6.0, 5.0, 4.0]) == (1.0, 6.0)
    assert MIN_FOR_INTERVAL == 6


@pytest.mark.parametrize(("n", "rank"), [(6, 1), (8, 1), (9, 2), (10, 2), (20, 6), (50, 18), (100, 40)])
def test_interval_ranks_are_the_published_ones(n: int, rank: int) -> None:
    """Sign test tables, two-sided 5% (e.g. Conover, Practical Nonparametric Statistics)."""
    assert interval_rank(n) == rank


@pytest.mark.parametrize("n", [*range(6, 40), 101, 1000, 5000])
def test_interval_covers_and_is_the_narrowest(n: int) -> None:
    k = interval_rank(n)

    def misses(rank: int) -> float:
        logs = [math.lgamma(n + 1) - math.lgamma(i + 1) - math.lgamma(n - i + 1) - n * math.log(2) for i in range(rank)]
        return 2 * math.fsum(math.exp(value) for value in logs)

    assert misses(k) <= 0.05 < misses(k + 1)


def test_interval_covers_in_practice() -> None:
    """Skewed samples, as times are: the interval holds the true median at least 95 times in 100."""
    rng = random.Random(1)
    true, held = math.exp(0.0), 0
    for _ in range(2000):
        low, high = median_interval([rng.lognormvariate(0.0, 1.0) for _ in range(15)]) or (0, 0)
        held += low <= true <= high
    assert held / 2000 > 0.94


@given(st.lists(floats, min_size=6, max_size=40), st.randoms())
def test_interval_brackets_the_median_in_any_order(values: list[float], rng: random.Random) -> None:
    low, high = median_interval(values) or (math.inf, -math.inf)
    assert min(values) <= low <= median(values) <= high <= max(values)
    assert median_interval(rng.sample(values, len(values))) == (low, high)


def test_half_width_is_the_longer_arm() -> None:
    assert half_width([100.0] * 5) == math.inf
    assert half_width([100.0] * 6) == 0.0
    assert half_width([99.0, 100.0, 100.0, 100.0, 100.0, 104.0]) == pytest.approx(0.04)


def test_looks_are_rare_but_never_stop() -> None:
    looks = list(itertools.accumulate(range(100), lambda n, _: next_look(n), initial=6))
    assert looks == sorted(set(looks))
    assert looks[1] == 7
    assert sum(look <= 1000 for look in looks) < 60


def test_ratio_pairs_within_rounds() -> None:
    """The device slows down by half between rounds; the ratio does not see it."""
    drift = [1.0, 1.0, 1.1, 1.2, 1.3, 1.4, 1.5]
    ratio, low, high = paired_ratio([20.0 * d for d in drift], [10.0 * d for d in drift])
    assert (ratio, low, high) == pytest.approx((2.0, 2.0, 2.0))


def test_ratio_of_few_rounds_has_no_interval() -> None:
    assert paired_ratio([2.0, 2.0, 2.0], [1.0] * 9) == (2.0, None, None)


# ---- the CUPTI recorder, on a CUPTI made of Python -------------------------------------------------------------------


Record = tuple[int, int, int, str, bool]
"""The fields of RECORD."""


class FakeCuptiError(Exception):
    def __init__(self, status: int) -> None:
        super().__init__(f"status {status}")
        self.status = status


class FakeCupti:
    """The part of `cupti.cupti` that the recorder uses. `launch` is the device: records wait until a flush."""

    SUBSCRIBER_PARAMS_SIZE = 32
    ActivityKind = SimpleNamespace(CONCURRENT_KERNEL=10, KERNEL=3, MEMCPY=1, MEMCPY2=22, MEMSET=2)
    Result = SimpleNamespace(ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED=39)
    cuptiError = FakeCuptiError  # noqa: N815

    def __init__(self) -> None:
        self.subscribed = ""
        self.enabled: set[int] = set()
        self.kept: list[Record] = []
        self.held: list[Record] = []
        self.dropped = 0
        self.flags: list[int] = []
        self.skew = 0

    class SubscriberParams:
        ptr = 1
        old_subscriber_name: str | None = None

    def subscribe_v2(self, callback: object, userdata: object, params: int) -> int:
        if self.subscribed:
            raise FakeCuptiError(39)
        self.subscribed = "suite"
        return 7

    def unsubscribe(self, subscriber: int) -> None:
        assert subscriber == 7
        self.subscribed = ""

    def activity_register_callbacks(self, requested: object, completed: object) -> None:
        self.requested, self.completed = requested, completed

    def activity_enable(self, kind: int) -> None:
        self.enabled.add(kind)

    def activity_disable(self, kind: int) -> None:
        self.enabled.remove(kind)

    def get_timestamp(self) -> int:
        return time.perf_counter_ns() + 10**18 + self.skew

    def activity_get_num_dropped_records(self, context: int, stream: int, address: int) -> None:
        import ctypes

        ctypes.c_size_t.from_address(address).value = self.dropped

    def activity_flush_all(self, flag: int) -> None:
        self.flags.append(flag)
        size, most = self.requested()
        assert size >= 1 << 16
        assert most == 0
        records, self.kept = self.kept, []
        if flag == 1:
            records, self.held = records + self.held, []
        if records:
            self.completed(np.array([record], RECORD) for record in records)

    def launch(self, us: float, kind: int = 10, name: str = "k", held: bool = False) -> None:
        start = self.get_timestamp()
        time.sleep(us / 1e6)
        if kind == 10 and 3 in self.enabled:
            kind, us = 3, us + 1.5  # a kernel traced alone has a longer record
        record = (kind, start, start + int(us * 1000), name if kind in (3, 10) else "", False)
        if kind in self.enabled:
            (self.held if held else self.kept).append(record)


@pytest.fixture
def cupti() -> FakeCupti:
    return FakeCupti()


@pytest.fixture
def recorder(cupti: FakeCupti) -> CuptiRecorder:
    recorder = CuptiRecorder(lambda: None, lambda: cupti.launch(20), cupti)
    recorder.start()
    return recorder


def nothing() -> None: ...


def test_cupti_counts_kernels_copies_and_fills_alone(cupti: FakeCupti, recorder: CuptiRecorder) -> None:
    def run() -> None:
        cupti.launch(100)
        cupti.launch(50, 2)
        cupti.launch(30, 1)

    recorder.sample("a", lambda: cupti.launch(900), run)
    recorder.sample("b", nothing, lambda: cupti.launch(20))
    a, b = recorder.collect()
    assert (a.name, a.us, b.name, b.us) == ("a", 180.0, "b", 20.0)
    assert a.activities is not None
    assert [(activity.name, activity.kind) for activity in a.activities] == [
        ("k", "kernel"),
        ("memset", "memset"),
        ("memcpy", "memcpy"),
    ]
    assert recorder.collect() == []
    recorder.stop()
    assert not cupti.enabled
    assert not cupti.subscribed


def test_cupti_does_not_count_gaps(cupti: FakeCupti, recorder: CuptiRecorder) -> None:
    recorder.sample("a", nothing, lambda: (cupti.launch(100), time.sleep(0.002), cupti.launch(100)))
    assert recorder.collect()[0].us == 200.0


def test_cupti_traces_kernels_one_at_a_time_when_told_to(cupti: FakeCupti, recorder: CuptiRecorder) -> None:
    assert cupti.enabled == {10, 1, 22, 2}
    recorder.one_at_a_time()
    assert cupti.enabled == {3, 1, 22, 2}
    recorder.sample("a", nothing, lambda: cupti.launch(100))
    [sample] = recorder.collect()
    assert sample.us == 100.0
    assert [(activity.name, activity.kind) for activity in sample.activities or ()] == [("k", "kernel")]
    recorder.stop()
    assert not cupti.enabled


def test_cupti_says_that_it_cannot_trace_one_at_a_time(
    cupti: FakeCupti, recorder: CuptiRecorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(kind: int) -> None:
        raise FakeCuptiError(35)

    monkeypatch.setattr(cupti, "activity_enable", refuse)
    with pytest.raises(RecorderError, match="cannot trace kernels one at a time: FakeCuptiError: status 35"):
        recorder.one_at_a_time()
    recorder.stop()
    assert not cupti.enabled
    assert not cupti.subscribed


def test_cupti_flushes_once_a_round_and_forces_what_is_held_back(cupti: FakeCupti, recorder: CuptiRecorder) -> None:
    for _ in range(3):
        recorder.sample("a", nothing, lambda: cupti.launch(10))
    recorder.collect()
    assert cupti.flags == [0]
    recorder.sample("a", nothing, lambda: cupti.launch(10, held=True))
    assert recorder.collect()[0].us == 10.0
    assert cupti.flags == [0, 0, 0, 0, 0, 1]


@pytest.mark.parametrize("late", ["a", "evict"])
def test_cupti_waits_for_a_record_that_is_not_finished_yet(
    cupti: FakeCupti, recorder: CuptiRecorder, monkeypatch: pytest.MonkeyPatch, late: str
) -> None:
    """It is neither forced out, which would give it no end, nor left for the next round, where it has no span."""

    def finish(seconds: float) -> None:
        cupti.kept, cupti.held = cupti.kept + cupti.held, []

    for last in (False, True):
        recorder.sample(
            "a",
            lambda last=last: cupti.launch(50, name="evict", held=last and late == "evict"),  # type: ignore[misc]
            lambda last=last: cupti.launch(20, name="a", held=last and late == "a"),  # type: ignore[misc]
        )
    monkeypatch.setattr(time, "sleep", finish)
    assert [sample.us for sample in recorder.collect()] == [20.0, 20.0]
    assert cupti.flags == [0, 0]
    assert recorder.collect() == []


def test_cupti_hands_over_an_empty_sample_as_empty(recorder: CuptiRecorder) -> None:
    recorder.sample("a", nothing, nothing)
    [sample] = recorder.collect()
    assert (sample.name, sample.us, list(sample.activities or ())) == ("a", 0.0, [])


def test_cupti_does_not_count_a_call_that_raised(cupti: FakeCupti, recorder: CuptiRecorder) -> None:
    def fail() -> None:
        cupti.launch(200)
        raise RuntimeError("a kernel's own error")

    recorder.sample("a", nothing, lambda: cupti.launch(100))
    with pytest.raises(RuntimeError, match="own error"):
        recorder.sample("b", nothing, fail)
    recorder.sample("c", nothing, lambda: cupti.launch(300))
    assert [(sample.name, sample.us) for sample in recorder.collect()] == [("a", 100.0), ("c", 300.0)]


def test_cupti_refuses_work_outside_a_batch(cupti: FakeCupti, recorder: CuptiRecorder) -> None:
    recorder.sample("a", nothing, lambda: cupti.launch(10))
    time.sleep(0.001)
    cupti.launch(10, name="stray")
    with pytest.raises(RecorderError, match=r"kernel 'stray' ran outside every span, .* after the call of 'a'"):
        recorder.collect()


def test_cupti_does_not_count_what_runs_between_samples(cupti: FakeCupti, recorder: CuptiRecorder) -> None:
    for _ in range(2):
        recorder.sample("a", nothing, lambda: cupti.launch(10))
        cupti.launch(900, name="stray")
    recorder.sample("a", nothing, lambda: cupti.launch(10))
    assert [sample.us for sample in recorder.collect()] == [10.0, 10.0, 10.0]


@pytest.mark.parametrize("wrong_by", [-4_000, 0, 4_000])
def test_cupti_may_convert_device_times_wrongly(cupti: FakeCupti, recorder: CuptiRecorder, wrong_by: int) -> None:
    """A call that is issued at once would begin before its sample, or end after it."""

    def run(us: float) -> None:
        cupti.launch(us)
        kind, start, end, *rest = cupti.kept.pop()
        cupti.kept.append((kind, start + wrong_by, end + wrong_by, *rest))

    for name, us in (("a", 3.0), ("b", 50.0), ("a", 3.0)):
        recorder.sample(name, lambda: run(40.0), lambda us=us: run(us))  # type: ignore[misc]
    assert [(sample.name, sample.us) for sample in recorder.collect()] == [("a", 3.0), ("b", 50.0), ("a", 3.0)]


def test_cupti_refuses_a_record_that_comes_a_round_late(cupti: FakeCupti, recorder: CuptiRecorder) -> None:
    recorder.sample("a", nothing, lambda: (cupti.launch(10), cupti.launch(10, name="late", held=True)))
    recorder.collect()  # one of the two is held back, unnoticed so far
    recorder.sample("a", nothing, nothing)
    with pytest.raises(RecorderError, match=r"'late' ran outside every span, .* before a preparation"):
        recorder.collect()


def test_cupti_refuses_dropped_records(cupti: FakeCupti, recorder: CuptiRecorder) -> None:
    recorder.sample("a", nothing, lambda: cupti.launch(10))
    cupti.dropped = 3
    with pytest.raises(RecorderError, match="dropped 3 records"):
        recorder.collect()


def test_cupti_refuses_a_clock_that_jumps(cupti: FakeCupti, recorder: CuptiRecorder) -> None:
    def jump() -> None:
        cupti.launch(10)
        cupti.skew += 500_000

    recorder.sample("a", nothing, jump)
    with pytest.raises(RecorderError, match=r"clock jumped: it moved [0-9]+ ns"):
        recorder.collect()


def test_a_paused_process_is_not_a_jump() -> None:
    """The host's clock is read on both sides of CUPTI's, so a pause between the readings is no contradiction."""
    assert _same_pace(np.array([(0, 5, 10), (1000, 6_000_000, 6_001_000)])).tolist() == [5, 6_000_000]
    with pytest.raises(RecorderError):
        _same_pace(np.array([(0, 5, 10), (1000, 6_000_000, 2_000)]))


def test_cupti_reports_what_its_callback_met(cupti: FakeCupti, recorder: CuptiRecorder) -> None:
    recorder.sample("a", nothing, lambda: cupti.launch(10))
    cupti.kept[0] = None  # type: ignore[call-overload]
    with pytest.raises(RecorderError, match="reading CUPTI's records failed: TypeError"):
        recorder.collect()


def test_cupti_taken_by_another_tool(cupti: FakeCupti) -> None:
    cupti.subscribed = "someone"
    cupti.SubscriberParams.old_subscriber_name = "CUPTI for Nsight"
    try:
        with pytest.raises(NoRecorderError, match="CUPTI is taken by Nsight"):
            CuptiRecorder(lambda: None, lambda: cupti.launch(20), cupti).start()
    finally:
        cupti.SubscriberParams.old_subscriber_name = None
    assert cupti.subscribed == "someone"


def test_cupti_lets_go_when_it_cannot_start(cupti: FakeCupti, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(kind: int) -> None:
        if kind == 2:
            raise FakeCuptiError(35)
        cupti.enabled.add(kind)

    monkeypatch.setattr(cupti, "activity_enable", refuse)
    with pytest.raises(NoRecorderError, match="cannot trace here: FakeCuptiError: status 35"):
        CuptiRecorder(lambda: None, lambda: cupti.launch(20), cupti).start()
    assert not cupti.enabled
    assert not cupti.subscribed


def test_cupti_starts_and_stops_again_and_again(cupti: FakeCupti) -> None:
    for _ in range(5):
        recorder = CuptiRecorder(lambda: None, lambda: cupti.launch(20), cupti)
        recorder.start()
        recorder.sample("a", nothing, lambda: cupti.launch(10))
        assert recorder.collect()[0].us == 10.0
        recorder.stop()


def test_missing_cupti_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "cupti", None)
    with pytest.raises(NoRecorderError, match="pip install 'cupti-python"):
        CuptiRecorder(lambda: None, lambda: None).start()


# ---- whole measurements, on a fake device and clock ------------------------------------------------------------------


class FakeTarget:
    """A GPU in simulated time: calls and evictions move `now`, and its recorder knows how long each call was busy."""

    on_host = False

    def __init__(self, unavailable: str = "", states: list[hardware.State] | None = None) -> None:
        self.now = self.free_at = 0
        self.unavailable = unavailable
        self.states = itertools.cycle(states) if states else None
        self.evictions = self.first_eviction = 0
        self.running: list[Activity] = []
        self.live = False
        self.traced = False
        self.serial = False
        self.power_w = 500.0

    def clock(self) -> int:
        return self.now

    def synchronize(self) -> None: ...

    def evict(self) -> None:
        self.evictions += 1
        self.first_eviction = self.first_eviction or self.now
        self.now += 50_000

    def recorder(self) -> FakeTarget:
        if self.unavailable:
            raise NoRecorderError(self.unavailable)
        self.samples: list[Sample] = []
        return self

    name = "cupti"

    def start(self) -> None:
        self.live = self.traced = True

    def stop(self) -> None:
        self.live = False

    def one_at_a_time(self) -> None:
        self.serial = True

    def sample(self, name: str, prepare: object, run: object) -> None:
        prepare()
        self.running = []
        run()
        busy = union_ns((activity.start, activity.end) for activity in self.running)
        self.samples.append(Sample(name, busy / 1000, self.running))

    def collect(self) -> list[Sample]:
        samples, self.samples = self.samples, []
        return samples

    def state(self) -> hardware.State | None:
        return next(self.states) if self.states else None

    def energy_mj(self) -> int:
        return int(self.now / 1e9 * self.power_w * 1000) // 10_000 * 10_000  # refreshed in steps of 10 J

    def call(self, name: str, us: object, kernels: object = 1, vendor: bool = False, issue_us: float = 5.0) -> Call:
        """A call busy for `us` (a number or a function of none), in `kernels` equal parts, issued in `issue_us`."""

        def issue() -> int:
            self.now += int(issue_us * 1000)
            total = us() if callable(us) else us
            parts = kernels() if callable(kernels) else kernels
            start = max(self.now, self.free_at)
            self.free_at = start + int(total * 1000)
            for _ in range(parts):
                self.running.append(Activity(name, start, start + int(total * 1000 / parts), "kernel"))
                start += int(total * 1000 / parts) + 100_000  # a gap that must not count
            return self.free_at

        def wait(ready_at: int) -> None:
            self.now = max(self.now, ready_at)

        return Call(name, issue, wait, vendor)


def run(target: FakeTarget, *calls: Call, cache: str = "cold", budget_s: float = 1.0, interval: float = 0.005, **more):
    energy = more.pop("energy", False)
    return Measurement(calls, target, cache, **more).measure(budget_s, interval, energy)


def test_measure_end_to_end() -> None:
    target = FakeTarget()
    jitter = random.Random(3)
    timings = run(
        target,
        target.call("vendor", lambda: 100.0 * jitter.uniform(0.99, 1.01), vendor=True),
        target.call("other vendor", 300.0, vendor=True),
        target.call("ours", lambda: 80.0 * jitter.uniform(0.99, 1.01), kernels=2, issue_us=30.0),
    )
    vendor, other, ours = timings.values()
    assert list(timings) == ["vendor", "other vendor", "ours"]
    assert vendor.device_us == pytest.approx(100, rel=0.005)
    assert ours.device_us == pytest.approx(80, rel=0.005)
    assert ours.device_us_low < ours.device_us < ours.device_us_high
    assert (vendor.vs_best, vendor.vs_best_low, vendor.vs_best_high) == (1.0, 1.0, 1.0)
    assert other.vs_best == pytest.approx(1 / 3, rel=0.01)
    assert ours.vs_best == pytest.approx(1.25, rel=0.01)
    assert ours.vs_best_low < ours.vs_best < ours.vs_best_high
    assert (ours.kernels, vendor.kernels) == (2.0, 1.0)
    assert other.latency_us == pytest.approx(305)
    assert ours.dispatch_us == pytest.approx(30)
    assert vendor.stopped_by == "interval"
    assert vendor.samples == other.samples == ours.samples >= MIN_FOR_INTERVAL
    assert (vendor.recorder, vendor.recorder_reason, vendor.cache) == ("cupti", "", "cold")
    assert [activity.name for activity in ours.activities] == ["ours", "ours"]
    assert not target.live
    json.dumps(asdict(ours))


@pytest.mark.parametrize("beside", ["another kernel", "a graph"])
def test_kernels_are_traced_one_at_a_time_unless_they_cannot_be(beside: str) -> None:
    target = FakeTarget()
    assert run(target, target.call("a", 10.0, kernels=3))["a"].recorder_reason == ""
    assert target.serial

    target = FakeTarget()
    call = target.call("b", 10.0)

    def issue() -> object:
        result = call.issue()
        if beside == "a graph":
            target.running[-1] = target.running[-1]._replace(of_graph=True)
        else:
            target.running.append(target.running[-1]._replace(name="beside it"))
        return result

    both = run(target, replace(call, issue=issue), target.call("a", 10.0))
    assert both["a"].recorder_reason.startswith("kernels of b overlap, or a graph launches them")
    assert not target.serial


def test_latency_is_measured_before_tracing() -> None:
    target = FakeTarget()
    traced: list[bool] = []
    call = target.call("a", 10.0)

    def issue() -> object:
        traced.append(target.live)
        return call.issue()

    run(target, replace(call, issue=issue))
    assert traced == sorted(traced)
    assert traced.count(False) > 20


def test_cold_evicts_before_every_sample_and_warm_calls_once() -> None:
    cold, warm = FakeTarget(), FakeTarget()
    samples = run(cold, cold.call("a", 10.0))["a"].samples
    assert cold.evictions == samples + 1  # and before the rehearsal
    counts = []
    call = warm.call("a", 10.0)
    counted = replace(call, issue=lambda: (counts.append(warm.live), call.issue())[1])
    samples = run(warm, counted, cache="warm")["a"].samples
    assert warm.evictions == 0
    assert counts.count(True) == 2 * (samples + 1)


def test_noise_ends_by_budget_and_the_minimum_is_kept() -> None:
    target, jitter = FakeTarget(), random.Random(5)
    noisy = target.call("a", lambda: jitter.uniform(50, 150))
    assert run(target, noisy, budget_s=0.05)["a"].stopped_by == "budget"
    assert run(target, noisy, budget_s=0.0)["a"].samples == MIN_FOR_INTERVAL


@pytest.mark.parametrize("us", [20.0, 130.0, 700.0])
def test_no_sample_is_left_when_the_budget_is_spent(us: float) -> None:
    target = FakeTarget()
    wobble = random.Random(1)
    calls = [target.call(name, lambda: us * wobble.uniform(0.8, 1.2)) for name in ("a", "b", "c")]
    timings = run(target, *calls, budget_s=0.3)
    assert {timing.stopped_by for timing in timings.values()} == {"budget"}
    assert target.samples == []
    assert sum(timing.samples for timing in timings.values()) == target.evictions - len(calls), "all but the rehearsal"


def test_a_slow_call_is_not_repeated_dozens_of_times() -> None:
    target, count = FakeTarget(), []
    slow = target.call("slow", lambda: (count.append(1), 2e6)[1])
    timings = run(target, slow, target.call("fast", 100.0, vendor=True))
    assert timings["slow"].samples == 3
    assert timings["fast"].samples == MIN_FOR_INTERVAL
    assert len(count) <= 7
    assert timings["slow"].device_us == 2e6
    assert (timings["slow"].device_us_low, timings["slow"].vs_best_low) == (None, None)
    assert timings["slow"].vs_best == pytest.approx(5e-5)
    assert "3 samples are too few" in timings["slow"].flags[0]


def test_fast_rounds_do_not_stop_at_once() -> None:
    """A device that heats up: the first samples agree among themselves, and not with what follows."""
    target = FakeTarget()
    call = target.call("a", lambda: 100.0 if target.now < 80_000_000 else 120.0)
    assert run(target, call)["a"].device_us == 120.0


def test_rounds_are_shuffled_by_seed() -> None:
    def order(seed: int) -> list[str]:
        target, told = FakeTarget(), []
        run(target, *(target.call(name, 10.0) for name in "abcd"), seed=seed, budget_s=0.01, on_progress=told.append)
        return told[8:40]  # after warm-up and rehearsal

    assert order(1) == order(1) != order(2)
    rounds = [order(1)[i : i + 4] for i in range(0, 32, 4)]
    assert all(sorted(r) == list("abcd") for r in rounds)
    assert len(set(map(tuple, rounds))) > 1


def test_pairs_survive_a_drifting_device() -> None:
    target = FakeTarget()
    slower = lambda us: us * (1 + target.now / 2e9)  # noqa: E731
    timings = run(
        target, target.call("vendor", lambda: slower(100.0), vendor=True), target.call("ours", lambda: slower(50.0))
    )
    assert timings["ours"].vs_best == pytest.approx(2.0, rel=1e-3)
    assert timings["ours"].vs_best_high / timings["ours"].vs_best_low < 1.002


def test_an_unseen_call_gets_an_error_and_no_number() -> None:
    target = FakeTarget()
    timings = run(target, target.call("ghost", 10.0, kernels=0, vendor=True), target.call("a", 20.0))
    ghost = timings["ghost"]
    assert ghost.error == "cupti saw no kernel, copy or fill of this call"
    assert (ghost.device_us, ghost.vs_best, ghost.samples, ghost.stopped_by) == (None, None, 0, "")
    assert ghost.latency_us is not None
    assert timings["a"].device_us == 20.0
    assert timings["a"].vs_best is None  # no vendor line was seen


def test_a_record_that_cannot_be_trusted_ends_the_case_and_the_tracing(monkeypatch: pytest.MonkeyPatch) -> None:
    target = FakeTarget()

    def broken() -> list[Sample]:
        raise RecorderError("dropped")

    monkeypatch.setattr(target, "collect", broken)
    with pytest.raises(RecorderError, match="dropped"):
        run(target, target.call("a", 10.0))
    assert not target.live


def test_without_cupti_a_gpu_has_latency_and_the_reason_but_no_device_time() -> None:
    target = FakeTarget(unavailable="cupti-python is not installed")
    timing = run(target, target.call("a", 10.0, vendor=True))["a"]
    assert (timing.recorder, timing.recorder_reason) == ("wall", "cupti-python is not installed")
    assert (timing.device_us, timing.vs_best, timing.kernels, timing.samples) == (None, None, None, 0)
    assert timing.latency_us == pytest.approx(15)
    assert target.evictions == 0


def test_a_changing_number_of_kernels_is_flagged() -> None:
    target, turn = FakeTarget(), itertools.count()
    timing = run(target, target.call("a", 10.0, kernels=lambda: 1 + next(turn) % 2))["a"]
    assert "activities of one call vary from 1 to 2" in timing.flags
    assert timing.kernels == pytest.approx(1.5, abs=0.01)


def test_state_is_summed_up_and_slowdowns_are_flagged() -> None:
    calm = hardware.State(1980, 3201, 40, 300.0, 0x1 | 0x4, 0)
    hot = hardware.State(1200, 3201, 88, 690.0, 0x20, 2)
    target = FakeTarget(states=[calm, calm, hot])
    timing = run(target, target.call("a", lambda: random.uniform(50, 150)))["a"]
    assert (timing.temperature_c, timing.power_w) == (88, 690.0)
    assert timing.clock_sm_mhz == 1980
    assert timing.clock_reasons == "power cap, thermal slowdown by software"
    assert timing.flags == ("clocks were lowered: thermal slowdown by software", "2 other processes on the device")
    quiet = FakeTarget(states=[calm])
    assert run(quiet, quiet.call("a", 10.0))["a"].flags == ()


def test_records_are_read_at_the_offsets_that_the_library_declares() -> None:
    kernel = np.dtype(
        [
            ("kind", "<u4"),
            ("pad", "<u4"),
            ("start", "<u8"),
            ("end", "<u8"),
            ("gap", "V4"),
            ("name", "<u8"),
            ("graph_node_id", "<u8"),
        ]
    )
    copy = np.dtype([("kind", "<u4"), ("pad", "V12"), ("start", "<u8"), ("end", "<u8")])
    module = SimpleNamespace(
        ActivityKind=FakeCupti.ActivityKind,
        activity_kernel9_dtype=np.dtype([("kind", "<u4")]),
        activity_kernel10_dtype=kernel,
        activity_memcpy6_dtype=copy,
        activity_memcpy_pto_p4_dtype=copy,
        activity_memset4_dtype=copy,
    )
    name = ctypes.create_string_buffer(b"_Z3addPf")
    add = np.array([(10, 0, 5, 9, b"", ctypes.addressof(name), 7)], kernel).tobytes()
    moved = np.array([(1, b"", 11, 12)], copy).tobytes()
    read = (10, 5, 9, "_Z3addPf", True)

    class Library:
        """CUPTI's iterator over `records`."""

        def __init__(self, *records: bytes) -> None:
            self.memory = ctypes.create_string_buffer(b"".join(records))
            begin = ctypes.addressof(self.memory)
            self.starts = iter([begin + sum(map(len, records[:i])) for i in range(len(records))])

        def cuptiActivityGetNextRecord(self, _: object, __: object, at: Any) -> int:  # noqa: N802
            at._obj.value = next(self.starts, None)
            return 0 if at._obj.value else 12

    def records(library: Any, valid: int) -> list[list[Record]]:
        tables = Cupti(module, library).records(library, ctypes.addressof(library.memory), valid)
        return [table.tolist() for table in tables]

    mixed = Library(add, moved, np.uint32(99).tobytes() * 8, add)
    assert records(mixed, 2 * len(add) + len(moved) + 32) == [[read] * 2, [(1, 11, 12, "", False)]]
    known = Library(moved, add, add, moved)
    size = 2 * len(moved) + 2 * len(add)
    assert records(known, size) == [[(1, 11, 12, "", False)] * 2, [read] * 2]
    assert next(known.starts) == ctypes.addressof(known.memory), "CUPTI's iterator is asked only where it is needed"
    alike = Library(add, add, add)
    assert records(alike, 3 * len(add)) == [[read] * 3]
    assert next(alike.starts) == ctypes.addressof(alike.memory)
    assert records(Library(add), 0) == []


def test_a_library_without_the_types_is_refused() -> None:
    with pytest.raises(NoRecorderError, match="declares no activity_kernel<version>_dtype"):
        layouts(SimpleNamespace(ActivityKind=FakeCupti.ActivityKind))


def test_energy_is_the_counters() -> None:
    target = FakeTarget()
    timings = run(target, target.call("a", 1000.0, issue_us=0.0), energy=True)
    assert timings["a"].joules == pytest.approx(0.5, rel=0.05)  # 500 W for 1 ms
    assert run(target, target.call("a", 10.0))["a"].joules is None


@pytest.mark.parametrize("counter", [True, False], ids=["counter", "no counter"])
def test_warm_up_is_short_only_where_the_energys_calls_follow(counter: bool) -> None:
    class Target(FakeTarget):
        def energy_mj(self) -> int | None:  # type: ignore[override]
            return super().energy_mj() if counter else None

    def recorded_from(energy: bool) -> int:
        target = Target()
        calls: list[int] = []
        call = target.call("a", lambda: calls.append(target.now) or 1000.0, issue_us=0.0)  # type: ignore[func-returns-value]
        run(target, call, energy=energy)
        return calls.index(next(now for now in calls if target.evictions and now >= target.first_eviction))

    assert (recorded_from(True) > recorded_from(False)) == counter
    assert recorded_from(True) >= 40  # 20 ms, and the latency's 20 calls


def test_energy_of_a_counter_that_stands_still_is_unknown() -> None:
    clock = itertools.count(0, 50_000_000)
    assert joules_per_call([(nothing_n, 1e6)] * 2, lambda: 5, lambda: next(clock)) == [None, None]
    assert joules_per_call([(nothing_n, 1e6)], lambda: None, lambda: next(clock)) == [None]


def nothing_n(count: int) -> Callable[[], None]:
    return lambda: None


def test_energy_is_read_between_refreshes_each_of_which_ends_one_window_and_begins_the_next() -> None:
    """The counter is stale by up to 100 ms at any moment; at its refreshes it is not."""
    now, millijoules, shown, refreshed = [0], [0.0], [0], [0]

    def load(watts: float, call_ns: int) -> Callable[[int], Callable[[], None]]:
        def start(count: int) -> Callable[[], None]:
            def finish() -> None:
                for _ in range(count * call_ns // 1_000_000):
                    now[0] += 1_000_000
                    millijoules[0] += watts
                    if now[0] - refreshed[0] >= 100_000_000:
                        shown[0], refreshed[0] = int(millijoules[0]), now[0]

            return finish

        return start

    watts = (700.0, 200.0, 500.0, 300.0)
    calls_ns = (1_000_000, 1_000_000, 60_000_000, 1_000_000)
    loads = [(load(*each), float(each[1])) for each in zip(watts, calls_ns, strict=True)]
    begin = now[0]
    joules = joules_per_call(loads, lambda: shown[0], lambda: now[0])
    expected = [w * ns / 1e9 for w, ns in zip(watts, calls_ns, strict=True)]
    assert joules[0] == pytest.approx(expected[0], rel=0.08)
    assert joules[1] == pytest.approx(expected[1], rel=0.15), "a batch of the load before, of 700 W, belongs to it"
    assert joules[2] == pytest.approx(expected[2], rel=0.4), "a slow call's window is known to a call only"
    assert joules[3] == pytest.approx(expected[3], rel=0.05), "and the next begins at a refresh of its own"
    assert now[0] - begin < 1_000_000_000


@pytest.mark.parametrize(
    ("names", "cache", "message"), [(["a", "a"], "cold", "names of calls must differ"), (["a"], "hot", "cold.*'hot'")]
)
def test_measure_refuses(names: list[str], cache: str, message: str) -> None:
    target = FakeTarget()
    with pytest.raises(ValueError, match=message):
        Measurement([target.call(name, 1.0) for name in names], target, cache)


# ---- the real thing, on the CPU --------------------------------------------------------------------------------------


def test_wall_recorder_keeps_the_preparation_out() -> None:
    recorder = WallRecorder()
    recorder.sample("a", lambda: time.sleep(0.05), lambda: time.sleep(0.002))
    (sample,) = recorder.collect()
    assert 2000 <= sample.us < 20_000
    assert sample.activities is None


@pytest.mark.parametrize("cache", ["cold", "warm"])
def test_a_sleep_on_the_cpu_takes_its_time(cache: str) -> None:
    calls = [
        Call("two", lambda: time.sleep(0.002), nothing_of, vendor=True),
        Call("four", nothing, lambda _: time.sleep(0.004)),
    ]
    timings = measure(calls, device=torch.device("cpu"), cache=cache, budget_s=0.2, interval=0.05)
    two, four = timings["two"], timings["four"]
    assert two.recorder == "wall"
    assert "CPU" in two.recorder_reason
    assert 2000 <= two.device_us < 3500
    assert 4000 <= four.device_us < 6500
    assert 0.35 < four.vs_best < 0.7
    assert four.dispatch_us < 1000 < 4000 <= four.latency_us
    assert two.dispatch_us >= 2000
    assert two.kernels is None
    assert two.joules is None


def nothing_of(result: object) -> None: ...


def test_measure_knows_cpu_and_cuda_only() -> None:
    with pytest.raises(ValueError, match="'meta'"):
        measure([], device=torch.device("meta"))


@pytest.mark.gpu
def test_torch_on_the_gpu() -> None:
    device = torch.device("cuda")
    a = torch.randn(2**24, device=device)
    calls = [
        Call("one", lambda: a + 1, lambda _: torch.cuda.synchronize(), vendor=True),
        Call("two", lambda: (a + 1) + 1, lambda _: torch.cuda.synchronize()),
    ]
    timings = measure(calls, device=device, budget_s=0.3)
    if timings["one"].recorder != "cupti":
        pytest.skip(f"CUPTI: {timings['one'].recorder_reason}")
    assert (timings["one"].kernels, timings["two"].kernels) == (1.0, 2.0)
    assert timings["one"].device_us < timings["two"].device_us < 3 * timings["one"].device_us
    assert timings["one"].latency_us > timings["one"].device_us
