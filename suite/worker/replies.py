"""What checks have shown, as replies."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Literal

from suite.worker.protocol import CheckReply, TellReply

if TYPE_CHECKING:
    from suite.checking.check import CheckResult
    from suite.checking.telling_cases import TellingResult


def told_reply(told: TellingResult) -> TellReply:
    """What the telling cases showed as the columns of a row."""
    found = told.diagnosis
    status: Literal["ok", "wrong"] = "wrong" if told.reason else "ok"
    return TellReply(status, told.reason, ", ".join(told.passed), found.text, found.error_map)


def checked_reply(result: CheckResult, remarks: tuple[str, ...], config: str, compile_cache: str) -> CheckReply:
    """The result of a checked call as the columns of a row."""
    columns = asdict(result)
    columns["status"] = "ok" if columns.pop("agrees") else "wrong"
    columns["reason"] = "; ".join(filter(None, (result.reason, *remarks)))
    return CheckReply(**columns, config=config, compile_cache=compile_cache)
