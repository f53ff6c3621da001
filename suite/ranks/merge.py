"""Makes one reply of those of all ranks. The reason of a fault names its rank."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from suite.worker.protocol import CheckReply, Failed, ProbeReply, Reply, TimingFailed

WORST = ("error_ratio", "max_ulp", "max_rel", "rms", "first_call_s", "weak_bound")
"""Columns of which the largest over all ranks counts."""


def is_fault(reply: Reply) -> bool:
    """True for a reply without a right result: the other ranks may wait for this one in vain."""
    return isinstance(reply, Failed | TimingFailed) or (
        isinstance(reply, CheckReply | ProbeReply) and reply.status != "ok"
    )


def merged(replies: Mapping[int, Reply], ranks: int) -> Reply:
    """One reply of all ranks. replies: by rank; after a fault some may be missing.

    Times are the same in the replies of all ranks: they have exchanged them.
    """
    faults = {rank: reply for rank, reply in replies.items() if is_fault(reply)}
    worst = next(iter(_ordered(faults or replies).values()))
    if isinstance(worst, CheckReply):
        everywhere = {rank: reply for rank, reply in replies.items() if isinstance(reply, CheckReply)}
        return _check(worst, everywhere, ranks)
    if isinstance(worst, ProbeReply | Failed | TimingFailed):
        return replace(worst, reason=_reasons(faults, ranks) if faults else worst.reason)
    return worst


def _ordered(replies: Mapping[int, Reply]) -> dict[int, Reply]:
    """Errors before wrong results, those before unsupported cases."""
    order = ("error", "timeout", "wrong", "unsupported", "ok")
    return dict(sorted(replies.items(), key=lambda each: order.index(getattr(each[1], "status", "ok"))))


def _check(worst: CheckReply, replies: Mapping[int, CheckReply], ranks: int) -> CheckReply:
    columns: dict[str, Any] = {name: _largest([getattr(each, name) for each in replies.values()]) for name in WORST}
    faults = {rank: reply for rank, reply in replies.items() if is_fault(reply)}
    shared = [each.deterministic for each in replies.values()]
    return replace(
        worst,
        **columns,
        reason=_reasons(faults, ranks) if faults else worst.reason,
        deterministic="no" if "no" in shared else worst.deterministic,
        judged=sum(each.judged or 0 for each in replies.values()) or None,
    )


def _largest(values: Sequence[float | None]) -> float | None:
    return max((each for each in values if each is not None), default=None)


def _reasons(faults: Mapping[int, Reply], ranks: int) -> str:
    """The reasons of the ranks that failed: one for all, if all have the same."""
    texts = {rank: str(getattr(reply, "reason", "")) for rank, reply in sorted(faults.items())}
    if len(texts) == ranks and len(set(texts.values())) == 1:
        return next(iter(texts.values())) + (f" (on all {ranks} ranks)" if ranks > 1 else "")
    return "; ".join(f"rank {rank}: {text}" for rank, text in texts.items())
