"""Fixtures of the tests of checks."""

from __future__ import annotations

import pytest

from suite.checking import diagnosis


@pytest.fixture(autouse=True)
def enough_time_for_a_diagnosis(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests ask whether a diagnosis is right. On a busy machine its budget for users may end before it is found."""
    monkeypatch.setattr(diagnosis, "BUDGET_S", 20.0)
