"""Data that crosses a process or a file is JSON, CSV or an array of a framework."""

from __future__ import annotations

import re

import pytest

from suite import frameworks
from suite.core.paths import ROOT


@pytest.mark.parametrize("folder", ["suite", *(frameworks.get(name).folder for name in frameworks.names())])
def test_nothing_is_unpickled(folder: str) -> None:
    for path in (ROOT / folder).rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"\b(c?pickle|marshal|shelve|dill|joblib|torch\.load|allow_pickle)\b", text), path
