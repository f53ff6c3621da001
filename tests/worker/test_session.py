"""A session: requests in, replies out, in this process."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest

from suite import ops
from suite.checking.repeats import CHECKED, IN_ORDER, Duration
from suite.core.errors import SuiteError
from suite.core.phases import Phase
from suite.hardware.device import Device
from suite.results.row import COLUMNS
from suite.timing import Timing
from suite.timing.sustained import Sustained
from suite.worker.protocol import (
    BuildReply,
    BuildRequest,
    CheckReply,
    CheckRequest,
    Failed,
    ProbeReply,
    Started,
    SustainRequest,
    TimeReply,
    TimeRequest,
    TimingColumns,
    TimingFailed,
    TuneReply,
    TuneRequest,
)
from suite.worker.replies import timing_columns
from suite.worker.session import Session

CPU = Device("cpu", name="CPU")
CASE = ops.get("vector_add").case((1000,))


@pytest.fixture
def started() -> list[Started]:
    return []


@pytest.fixture
def session(started: list[Started]) -> Session:
    return Session(CPU, started.append)


def test_a_check_replies_with_columns_of_a_row_and_keeps_the_inputs(session: Session) -> None:
    reply = session.handle(CheckRequest(CASE, "torch", 0))
    assert isinstance(reply, CheckReply)
    assert (reply.status, reply.deterministic) == ("ok", "yes")
    assert reply.error_ratio is not None
    assert reply.error_ratio < 0.7
    held = session.problem
    session.handle(CheckRequest(CASE, "numpy", 0))
    assert session.problem is held
    session.handle(CheckRequest(CASE, "numpy", 1))
    assert session.problem is not held, "other seeds have other inputs"


def test_what_a_call_needs_is_built_without_judging_it(session: Session, started: list[Started]) -> None:
    assert session.handle(BuildRequest(CASE, "torch", 0)) == BuildReply(covered=True)
    assert started == [Started("torch", Phase.PREPARING), Started("torch", Phase.FIRST_CALL)]
    started.clear()
    assert session.handle(BuildRequest(CASE, "torch", 0, "only")) == BuildReply(covered=True)
    assert len(started) == 2 * len(ops.get("vector_add").telling_cases("float32", "ieee", first=True))
    uncovered = ops.get("matmul").case((32, 32, 32), "float32", "ieee")
    assert session.handle(BuildRequest(uncovered, "cuda/mma", 0)) == BuildReply(covered=False)
    assert session.problem is None


def test_a_started_event_comes_before_each_phase(session: Session, started: list[Started]) -> None:
    session.handle(CheckRequest(CASE, "torch", 0))
    phases = ["PREPARING", "FIRST_CALL", "SECOND_CALL", "JUDGING", "THIRD_CALL", "JUDGING"]
    assert started == [Started("torch", Phase[name]) for name in phases]


def test_implementations_are_timed_together_with_transfers_on_request(session: Session) -> None:
    reply = session.handle(TimeRequest(CASE, ("torch", "numpy"), 0, "cold", transfers=True))
    assert isinstance(reply, TimeReply)
    assert reply.timings.keys() == {"torch", "numpy"}
    for columns in reply.timings.values():
        assert columns.device_us
        assert (columns.recorder, columns.cache, columns.reason) == ("wall", "cold", "")
        assert columns.to_device_us == 0.0, "the inputs of a CPU are on the host"


def test_calls_back_to_back_fill_columns_of_a_row(session: Session, started: list[Started]) -> None:
    reply = session.handle(SustainRequest(CASE, "numpy", 0))
    assert set(reply.columns) == names(Sustained)
    assert reply.columns["sustained_us"] > 0
    assert reply.columns["joules"] is None, "no counter on a CPU"
    assert started[-1] == Started("numpy", Phase.TIMED_CALL)


def test_nothing_to_tune_is_an_empty_reply(session: Session) -> None:
    assert session.handle(TuneRequest(CASE, "torch", 0)) == TuneReply("ok")


@pytest.mark.parametrize(
    ("error", "failing"), [(ValueError("no"), "torch"), (SuiteError("no"), None)], ids=["any exception", "SuiteError"]
)
def test_a_failure_is_attributed_to_the_implementation_that_ran(
    session: Session, error: Exception, failing: str | None
) -> None:
    check = CheckRequest(CASE, "torch", 0)
    session.handle(check)
    reason = f"{type(error).__name__}: no"
    assert session.failed(check, error) == Failed(reason, failing)
    time = TimeRequest(CASE, ("torch",), 0, "cold", transfers=False)
    assert session.failed(time, error) == TimingFailed("error", reason, failing)


def names(kind: type) -> set[str]:
    return {each.name for each in fields(kind)}


def test_every_field_of_a_reply_is_a_column_of_a_row() -> None:
    assert names(CheckReply) <= set(COLUMNS)
    assert names(TimingColumns) <= {*COLUMNS, "sample_us"}


OVER_RANKS = {"product_us", "communication_us", "exposed_us"}
TRANSFERS = {"to_device_us", "to_device_pinned_us", "to_host_us", "to_host_pinned_us"}
NOT_FROM_A_WORKER = {
    *("operation", "case", "dtype", "precision", "implementation", "execution", "device", "vendor", "versions", "seed"),
    *("of_limit", "limit", "gb_per_s", "tflops", "gflop_per_joule", "program_us", "program_pinned_us"),
    *("compile_s", "compile_warm_s", "timed", "compiled", "suspect", "killed_from_outside", "noisy"),
    *("runs", "spread", "vs_best_spread", "bytes", "flops", "peer", "vs_peer", "error_vs_vendor"),
    *("of_limit_at_clock", "sustained_of_limit", "sustained_of_limit_at_clock", "sustained"),
    *("ncu_tensor", "ncu_dram", "ncu_l2", "ncu_issue", "ncu_occupancy", "ncu_stall", "bound_by", "code"),
    *("ranks", "bus_gb_per_s", "host", "gpu", "driver", "gpus", "gpu_spread"),
    *(name for name in COLUMNS if name == "counted" or name.startswith("count_")),
}
"""Columns that the runner knows before it asks, computes from others, or takes from further workers."""


def test_every_other_column_of_a_row_comes_from_the_runner() -> None:
    from_workers = set().union(*map(names, (CheckReply, ProbeReply, TimingColumns, Sustained)))
    assert {*COLUMNS, "sample_us"} == from_workers | NOT_FROM_A_WORKER


def test_no_field_of_a_timing_is_lost_on_the_way_to_a_row(session: Session) -> None:
    """`error` and `recorder_reason` become part of the reason, `flags` the remarks; activities are for debugging."""
    merged = {"error", "recorder_reason", "activities", "flags"}
    assert (
        names(Timing) - merged
        == names(TimingColumns) - {"reason", "remarks", "peak_bytes", "judged"} - TRANSFERS - OVER_RANKS
    )
    timing = Timing("cupti", "overlap", "cold", device_us=1.0, flags=("one", "two"), error="no kernel")
    columns = timing_columns(timing, 512, "cuda")
    assert (columns.device_us, columns.peak_bytes, columns.remarks) == (1.0, 512, "one; two")
    assert columns.reason == "no kernel; overlap"
    assert timing_columns(timing, None, "cpu").reason == "no kernel", "on a CPU the wall clock needs no reason"


@pytest.mark.parametrize(
    ("name", "repeats"), [("numpy", CHECKED), ("triton", IN_ORDER), ("cuda", IN_ORDER)], ids=["numpy", "triton", "cuda"]
)
def test_kernels_that_run_in_one_order_are_repeated_less(
    name: str, repeats: Duration, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Duration] = []

    def check(*_: Any, repeats: Duration, **__: Any) -> None:
        seen.append(repeats)
        raise NotImplementedError

    monkeypatch.setattr("suite.checking.check.check", check)
    session = Session(CPU, lambda started: None)
    assert session.check(CheckRequest(CASE, name, 0)).status == "unsupported"
    assert seen == [repeats]
