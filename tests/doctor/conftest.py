"""Fixtures of this folder."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest
from fakes import nvml

from suite.cli import main as commands


@pytest.fixture
def fake_nvml(monkeypatch: pytest.MonkeyPatch) -> nvml.FakeNvml:
    return nvml.install(monkeypatch)


@pytest.fixture
def doctor(monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """Runs `suite doctor` with the given arguments in this process and returns its exit status."""

    def run(*arguments: str) -> int:
        monkeypatch.setattr(sys, "argv", ["suite", "doctor", *arguments])
        try:
            commands.main()
        except SystemExit as end:
            return int(end.code or 0)
        return 0

    return run
