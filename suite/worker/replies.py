"""Results of checks as replies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, fields, replace
from typing import TYPE_CHECKING, Any, Literal

from suite.worker.protocol import CheckReply, ProbeReply, TimingColumns

if TYPE_CHECKING:
    from suite.checking.check import CheckResult
    from suite.checking.problem import Problem
    from suite.checking.telling_cases import ProbeResult
    from suite.numerics.weak_bound import WeakBound
    from suite.timing import Timing


def probe_reply(result: ProbeResult) -> ProbeReply:
    """A probe result as the columns of a row."""
    found = result.diagnosis
    status: Literal["ok", "wrong"] = "wrong" if result.reason else "ok"
    return ProbeReply(status, result.reason, ", ".join(result.passed), found.text, found.error_map)


def declined_note(result: ProbeResult) -> str:
    """A sentence about the telling cases that a user's file declined, by its reasons; empty if there are none."""
    by_reason: dict[str, list[str]] = {}
    for name, reason in result.not_covered.items():
        by_reason.setdefault(reason, []).append(name)
    parts = [", ".join(names) + f" ({reason})" * bool(reason) for reason, names in by_reason.items()]
    return f"telling cases that it does not cover: {', '.join(parts)}" if parts else ""


def checked_reply(
    result: CheckResult, remarks: tuple[str, ...], config: str, compile_cache: str, weak: WeakBound | None
) -> CheckReply:
    """The result of a checked call as the columns of a row. weak: why its bound says little."""
    columns = asdict(result)
    columns["status"] = "ok" if columns.pop("agrees") else "wrong"
    columns["reason"] = "; ".join(filter(None, (result.reason, *remarks)))
    if weak is not None:
        columns |= {"weak_bound": weak.share, "weakness": f"weak bound: {weak.reason}"}
    return CheckReply(**columns, config=config, compile_cache=compile_cache)


def disturbing(columns: TimingColumns, disturbance: str) -> TimingColumns:
    """The columns of a user's file that disturbs the vendor's implementation beside it: ratios mean nothing."""
    remarks = "; ".join(filter(None, (columns.remarks, f"disturbs its neighbours: {disturbance}")))
    return replace(columns, remarks=remarks, vs_best=None, vs_best_low=None, vs_best_high=None)


def with_transfers(columns: Mapping[str, TimingColumns], problem: Problem) -> dict[str, TimingColumns]:
    """The columns of each implementation, with the times of copies of the problem's inputs and result."""
    from suite import timing

    copies: dict[str, Any] = timing.transfers(
        problem.draws[0], problem.output_shape, problem.output_dtype, problem.device
    )
    return {name: replace(each, **copies) for name, each in columns.items()}


def timing_columns(timing: Timing, peak_bytes: int | None, device_type: str, judged: int = 0) -> TimingColumns:
    """A timing as the columns of a row.

    On a CPU the wall clock is the regular recorder, so the row gives no reason for it. judged: the number of timed
    calls whose results were judged.
    """
    columns = {
        each.name: getattr(timing, each.name)
        for each in fields(timing)
        if each.name not in ("error", "recorder_reason", "flags", "activities")
    }
    reasons = (timing.error, timing.recorder_reason if device_type == "cuda" else "")
    return TimingColumns(
        **columns,
        reason="; ".join(filter(None, reasons)),
        remarks="; ".join(timing.flags),
        peak_bytes=peak_bytes,
        judged=judged,
    )
