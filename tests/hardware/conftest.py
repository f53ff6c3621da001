"""Fixtures of this folder."""

from __future__ import annotations

import pytest
from fakes import nvml


@pytest.fixture
def fake_nvml(monkeypatch: pytest.MonkeyPatch) -> nvml.FakeNvml:
    return nvml.install(monkeypatch)
