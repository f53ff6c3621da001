"""The CUPTI recorder, on a CUPTI in Python."""

from __future__ import annotations

import sys
import threading
import time
from typing import Any

import numpy as np
import pytest
from fakes.cupti import BLOCK, GRID, REGISTERS, SHARED_BYTES, FakeCupti, FakeCuptiError

from suite.timing import (
    NoRecorderError,
    RecorderError,
    recorder_cupti,
)
from suite.timing.cupti_records import RECORD
from suite.timing.intervals import Launch, covered_ns
from suite.timing.recorder_cupti import CuptiRecorder, _cupti_times


@pytest.fixture
def cupti() -> FakeCupti:
    return FakeCupti()


@pytest.fixture
def recorder(cupti: FakeCupti) -> CuptiRecorder:
    recorder = CuptiRecorder(lambda: None, lambda: cupti.launch(20), cupti)
    recorder.start()
    return recorder


def nothing() -> None: ...


def test_kernels_copies_and_fills_of_the_call_are_counted(cupti: FakeCupti, recorder: CuptiRecorder) -> None:
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


def test_a_kernel_has_its_launch_and_a_fill_none(cupti: FakeCupti, recorder: CuptiRecorder) -> None:
    recorder.sample("a", nothing, lambda: (cupti.launch(10), cupti.launch(10, 2)))
    [sample] = recorder.collect()
    launch, fill = (each.launch for each in sample.activities or ())
    assert (launch, fill) == (Launch(GRID, BLOCK, REGISTERS, SHARED_BYTES), None)
    assert launch is not None
    assert {type(number) for number in (*launch.grid, *launch.block)} == {int}, "another process gets them as JSON"


def test_what_other_devices_do_is_not_counted(cupti: FakeCupti) -> None:
    recorder = CuptiRecorder(lambda: None, lambda: cupti.launch(20, device=1), cupti, device=1)
    recorder.start()

    def run() -> None:
        cupti.launch(100, device=1)
        cupti.launch(900, device=0)
        cupti.launch(300, 1, device=0)

    recorder.sample("a", lambda: cupti.launch(50, device=1), run)
    [sample] = recorder.collect()
    assert sample.us == 100.0
    assert [activity.name for activity in sample.activities or ()] == ["k"]


def test_a_record_that_arrives_during_a_collection_is_not_lost(
    cupti: FakeCupti, recorder: CuptiRecorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It belongs to the next collection, which finds that it lies outside every span."""

    def deliver(starts: Any, ends: Any) -> Any:
        cupti.launch(10, name="late")
        cupti.activity_flush_all(1)
        return covered_ns(starts, ends)

    recorder.sample("a", nothing, lambda: cupti.launch(10))
    with monkeypatch.context() as patch:
        patch.setattr(recorder_cupti, "covered_ns", deliver)
        recorder.collect()
    recorder.sample("a", nothing, lambda: cupti.launch(10))
    with pytest.raises(RecorderError, match="'late' ran outside every span"):
        recorder.collect()


def test_no_record_is_lost_while_another_thread_delivers(recorder: CuptiRecorder) -> None:
    count = 4000
    tables = [np.zeros(1, RECORD) for _ in range(count)]
    for table in tables:
        table["kind"] = 10
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    found = 0
    try:
        thread = threading.Thread(target=lambda: [recorder._buffer_completed([table]) for table in tables])
        thread.start()
        while thread.is_alive():
            found += len(recorder._take_arrived())
    finally:
        sys.setswitchinterval(interval)
        thread.join()
    assert found + len(recorder._take_arrived()) == count
    assert recorder._failure is None


def test_gaps_are_not_counted(cupti: FakeCupti, recorder: CuptiRecorder) -> None:
    recorder.sample("a", nothing, lambda: (cupti.launch(100), time.sleep(0.002), cupti.launch(100)))
    assert recorder.collect()[0].us == 200.0


def test_cupti_traces_kernels_serialize_kernels_on_request(cupti: FakeCupti, recorder: CuptiRecorder) -> None:
    assert cupti.enabled == {10, 1, 22, 2}
    recorder.serialize_kernels()
    assert cupti.enabled == {3, 1, 22, 2}
    recorder.sample("a", nothing, lambda: cupti.launch(100))
    [sample] = recorder.collect()
    assert sample.us == 100.0
    assert [(activity.name, activity.kind) for activity in sample.activities or ()] == [("k", "kernel")]
    recorder.stop()
    assert not cupti.enabled


def test_cupti_says_that_it_cannot_trace_serialize_kernels(
    cupti: FakeCupti, recorder: CuptiRecorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(kind: int) -> None:
        raise FakeCuptiError(35)

    monkeypatch.setattr(cupti, "activity_enable", refuse)
    with pytest.raises(RecorderError, match="cannot trace kernels one at a time: FakeCuptiError: status 35"):
        recorder.serialize_kernels()
    recorder.stop()
    assert not cupti.enabled
    assert not cupti.subscribed


def test_a_batch_is_flushed_once_and_incomplete_records_forced(cupti: FakeCupti, recorder: CuptiRecorder) -> None:
    for _ in range(3):
        recorder.sample("a", nothing, lambda: cupti.launch(10))
    recorder.collect()
    assert cupti.flags == [0]
    recorder.sample("a", nothing, lambda: cupti.launch(10, held=True))
    assert recorder.collect()[0].us == 10.0
    assert cupti.flags == [0, 0, 0, 0, 0, 1]


@pytest.mark.parametrize("late", ["a", "evict"])
def test_an_incomplete_record_is_waited_for(
    cupti: FakeCupti, recorder: CuptiRecorder, monkeypatch: pytest.MonkeyPatch, late: str
) -> None:
    """The recorder does not force it out, which would lose its end, nor leave it for the next batch, which has no span
    for it."""

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


def test_a_call_without_activities_is_an_empty_sample(recorder: CuptiRecorder) -> None:
    recorder.sample("a", nothing, nothing)
    [sample] = recorder.collect()
    assert (sample.name, sample.us, list(sample.activities or ())) == ("a", 0.0, [])


def test_a_call_that_raises_is_not_counted(cupti: FakeCupti, recorder: CuptiRecorder) -> None:
    def fail() -> None:
        cupti.launch(200)
        raise RuntimeError("a kernel's own error")

    recorder.sample("a", nothing, lambda: cupti.launch(100))
    with pytest.raises(RuntimeError, match="own error"):
        recorder.sample("b", nothing, fail)
    recorder.sample("c", nothing, lambda: cupti.launch(300))
    assert [(sample.name, sample.us) for sample in recorder.collect()] == [("a", 100.0), ("c", 300.0)]


def test_an_activity_outside_a_batch_is_an_error(cupti: FakeCupti, recorder: CuptiRecorder) -> None:
    time.sleep(0.001)
    cupti.launch(10, name="stray")
    time.sleep(0.001)
    recorder.sample("a", nothing, lambda: cupti.launch(10))
    with pytest.raises(RecorderError, match=r"kernel 'stray' ran outside every span, .* before a preparation"):
        recorder.collect()


def test_activities_between_samples_are_not_counted(cupti: FakeCupti, recorder: CuptiRecorder) -> None:
    for _ in range(2):
        recorder.sample("a", nothing, lambda: cupti.launch(10))
        cupti.launch(900, name="stray")
    recorder.sample("a", nothing, lambda: cupti.launch(10))
    cupti.launch(900, name="copy of the result")
    assert [sample.us for sample in recorder.collect()] == [10.0, 10.0, 10.0]
    recorder.sample("a", nothing, lambda: cupti.launch(10))
    assert [sample.us for sample in recorder.collect()] == [10.0]


@pytest.mark.parametrize("wrong_by", [-4_000, 0, 4_000])
def test_a_clock_offset_is_corrected(cupti: FakeCupti, recorder: CuptiRecorder, wrong_by: int) -> None:
    """Without the correction the call would begin before its span or end after it."""

    def run(us: float) -> None:
        cupti.launch(us)
        kind, start, end, *rest = cupti.kept.pop()
        cupti.kept.append((kind, start + wrong_by, end + wrong_by, *rest))

    for name, us in (("a", 3.0), ("b", 50.0), ("a", 3.0)):
        recorder.sample(name, lambda: run(40.0), lambda us=us: run(us))  # type: ignore[misc]
    assert [(sample.name, sample.us) for sample in recorder.collect()] == [("a", 3.0), ("b", 50.0), ("a", 3.0)]


def test_a_record_of_an_earlier_batch_is_an_error(cupti: FakeCupti, recorder: CuptiRecorder) -> None:
    recorder.sample("a", nothing, lambda: (cupti.launch(10), cupti.launch(10, name="late", held=True)))
    recorder.collect()  # one of the two is held back, which shows only later
    recorder.sample("a", nothing, nothing)
    with pytest.raises(RecorderError, match=r"'late' ran outside every span, .* before a preparation"):
        recorder.collect()


def test_dropped_records_are_an_error(cupti: FakeCupti, recorder: CuptiRecorder) -> None:
    recorder.sample("a", nothing, lambda: cupti.launch(10))
    cupti.dropped = 3
    with pytest.raises(RecorderError, match="dropped 3 records"):
        recorder.collect()


def test_a_clock_that_jumps_is_an_error(cupti: FakeCupti, recorder: CuptiRecorder) -> None:
    def jump() -> None:
        cupti.launch(10)
        cupti.skew += 10**13  # three hours: 1% of the sample's time is allowed, and a busy machine may lengthen it

    recorder.sample("a", nothing, jump)
    with pytest.raises(RecorderError, match=r"clock jumped: it moved [0-9]+ ns"):
        recorder.collect()


def test_a_paused_process_is_not_a_jump() -> None:
    """The host's clock is read before and after CUPTI's, so a pause between the readings is consistent."""
    assert _cupti_times(np.array([(0, 5, 10), (1000, 6_000_000, 6_001_000)])).tolist() == [5, 6_000_000]
    with pytest.raises(RecorderError):
        _cupti_times(np.array([(0, 5, 10), (1000, 6_000_000, 2_000)]))


def test_an_error_in_the_callback_is_reported(cupti: FakeCupti, recorder: CuptiRecorder) -> None:
    recorder.sample("a", nothing, lambda: cupti.launch(10))
    cupti.kept[0] = None  # type: ignore[call-overload]
    with pytest.raises(RecorderError, match="reading CUPTI's records failed: TypeError"):
        recorder.collect()


def test_another_subscriber_is_named(cupti: FakeCupti) -> None:
    cupti.subscribed = "someone"
    cupti.SubscriberParams.old_subscriber_name = "CUPTI for Nsight"
    try:
        with pytest.raises(
            NoRecorderError, match=r"CUPTI is in use by Nsight, .*: leave torch\.profiler, or run outside"
        ):
            CuptiRecorder(lambda: None, lambda: cupti.launch(20), cupti).start()
    finally:
        cupti.SubscriberParams.old_subscriber_name = None
    assert cupti.subscribed == "someone"


def test_a_failed_start_unsubscribes(cupti: FakeCupti, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(kind: int) -> None:
        if kind == 2:
            raise FakeCuptiError(35)
        cupti.enabled.add(kind)

    monkeypatch.setattr(cupti, "activity_enable", refuse)
    with pytest.raises(NoRecorderError, match="cannot trace here: FakeCuptiError: status 35"):
        CuptiRecorder(lambda: None, lambda: cupti.launch(20), cupti).start()
    assert not cupti.enabled
    assert not cupti.subscribed


def test_the_recorder_restarts(cupti: FakeCupti) -> None:
    for _ in range(5):
        recorder = CuptiRecorder(lambda: None, lambda: cupti.launch(20), cupti)
        recorder.start()
        recorder.sample("a", nothing, lambda: cupti.launch(10))
        assert recorder.collect()[0].us == 10.0
        recorder.stop()


def test_a_missing_cupti_python_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupti", None)
    with pytest.raises(NoRecorderError, match="pip install 'cupti-python"):
        CuptiRecorder(lambda: None, lambda: None).start()


def test_work_before_a_call_and_at_its_delivery_is_known_apart_and_copies_deliver(
    cupti: FakeCupti, recorder: CuptiRecorder
) -> None:
    def deliver() -> None:
        cupti.launch(40, 1)
        cupti.launch(60)

    recorder.sample("a", lambda: cupti.launch(900), lambda: cupti.launch(100))
    recorder.deliver(deliver)
    recorder.sample("b", lambda: cupti.launch(70), lambda: cupti.launch(20))
    recorder.deliver(lambda: cupti.launch(40, 1))
    a, b = recorder.collect()
    assert [(each.us, each.before_us, each.after_us) for each in (a, b)] == [(100.0, 900.0, 60.0), (20.0, 70.0, 0.0)]
    assert [len(each.activities or ()) for each in (a, b)] == [1, 1]


def test_a_process_that_does_nothing_outside_its_calls_has_all_its_records(
    cupti: FakeCupti, recorder: CuptiRecorder
) -> None:
    """No record is waited for that a preparation or delivery does not have."""
    for _ in range(3):
        recorder.sample("a", nothing, lambda: cupti.launch(100))
        recorder.deliver(nothing)
    assert [(each.us, each.before_us, each.after_us) for each in recorder.collect()] == [(100.0, 0.0, 0.0)] * 3
    assert cupti.flags == [0]
