"""`assert_no_slower` of `suite.testing`: baselines are written, and judged by the rules of `diff`."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from diff.rows import ranked

from suite import testing
from suite.core.errors import UsageError
from suite.core.paths import ROOT
from suite.results.csv_file import read_rows
from suite.testing import NoSlower

VENDOR_US = 100.0


class Clock:
    """Stands for `suite.time`: the function takes `us`, the vendor beside it 100 us."""

    def __init__(self) -> None:
        self.us, self.given = 100.0, {}

    def __call__(self, *_: Any, **how: Any) -> SimpleNamespace:
        self.given = how
        rows = {each.implementation: each for each in ranked({"torch": VENDOR_US, "with/mine": self.us}, width=0.001)}
        return SimpleNamespace(rows=(rows["with/mine"], rows["torch"]))


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(testing, "time", found)
    return found


@pytest.fixture
def messages() -> list[str]:
    return []


@pytest.fixture
def no_slower(tmp_path: Path, messages: list[str]) -> Any:
    """Each call is the first one of its test."""
    return lambda *given, **how: NoSlower(tmp_path, "test_mine.test[a/b]", messages.append)(*given, device="cpu", **how)


def test_without_a_baseline_this_run_becomes_it(
    clock: Clock, no_slower: Any, messages: list[str], tmp_path: Path
) -> None:
    no_slower(len, "matmul", (64, 64, 64))
    (path,) = tmp_path.glob("cpu-*/*.csv")
    assert path.name == "test_mine.test_a_b_.csv"
    assert [row.implementation for row in read_rows(path)] == ["with/mine", "torch"]
    assert messages == [f"test_mine.test[a/b]: no baseline: this run's times are written to {path}"]
    assert clock.given == {"beside": "torch", "device": "cpu"}


@pytest.mark.parametrize(("us", "verdict"), [(101.0, "SAME"), (60.0, "FASTER")], ids=["same", "faster"])
def test_what_is_no_slower_passes(clock: Clock, no_slower: Any, messages: list[str], us: float, verdict: str) -> None:
    no_slower(len, "matmul", (64, 64, 64))
    clock.us = us
    no_slower(len, "matmul", (64, 64, 64))
    assert messages[-1].startswith(f"test_mine.test[a/b]: {verdict}")


def test_what_is_slower_fails_and_says_by_how_much(clock: Clock, no_slower: Any, messages: list[str]) -> None:
    no_slower(len, "matmul", (64, 64, 64))
    clock.us = 120.0
    with pytest.raises(AssertionError, match=r"SLOWER +matmul .* ratio 0\.8333 .* us 100\.0 -> 120\.0  by vs torch"):
        no_slower(len, "matmul", (64, 64, 64))
    assert "SLOWER" in messages[-1]
    no_slower(len, "matmul", (64, 64, 64), threshold=0.5)


def test_a_baseline_of_another_cache_state_is_refused(clock: Clock, no_slower: Any, tmp_path: Path) -> None:
    no_slower(len, "matmul", (64, 64, 64))
    (path,) = tmp_path.glob("cpu-*/*.csv")
    path.write_text(path.read_text(encoding="utf-8").replace(",cold,", ",warm,"), encoding="utf-8")
    with pytest.raises(UsageError, match="the cache is warm in BASE and cold in NEW"):
        no_slower(len, "matmul", (64, 64, 64))


def test_several_calls_of_a_test_have_a_baseline_each(clock: Clock, messages: list[str], tmp_path: Path) -> None:
    assert_no_slower = NoSlower(tmp_path, "test_two", messages.append)
    for _ in range(2):
        assert_no_slower(len, "matmul", (64, 64, 64), device="cpu")
    assert {path.name for path in tmp_path.glob("*/*")} == {"test_two.csv", "test_two.2.csv"}


def test_the_documents_name_what_there_is() -> None:
    text = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")
    assert 'pytest_plugins = ["kernel_suite.testing"]' in text
    assert "assert_no_slower(" in text
