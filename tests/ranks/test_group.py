"""Decisions that ranks make together."""

from __future__ import annotations

import pytest

from suite.checking.repeats import LEAST_REPEATS
from suite.ranks import group


@pytest.mark.parametrize(("call_s", "calls"), [(1e-4, 64), (1e-3, LEAST_REPEATS), (5e-3, 16), (0.2, 0)])
def test_ranks_agree_seldom_on_the_number_of_repeated_calls(
    call_s: float, calls: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The times of the calls are as in a check: at most 0.01 s in all, but 0.12 s for the least number."""
    asked: list[float] = []

    def largest(value: float) -> float:
        asked.append(value)
        return value

    monkeypatch.setattr(group, "largest", largest)
    duration, count = group.Together(0.01, 0.12), 0
    while duration.allows(count, count * call_s, call_s):
        count += 1
    assert count == calls
    assert len(asked) <= 8


def test_one_rank_whose_time_is_used_up_ends_the_calls_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group, "largest", lambda value: 1.0)
    assert not group.Together(1.0).allows(4, 0.0, 0.001)
