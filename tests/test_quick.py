"""The sample of the quick tier, and its limits on time."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import quick


@dataclass(eq=False)
class Item:
    """The attributes of a test that the quick tier reads."""

    nodeid: str
    slow: bool = False
    params: dict[str, Any] = field(default_factory=dict)

    @property
    def path(self) -> Path:
        return Path(self.nodeid.partition("::")[0])

    @property
    def callspec(self) -> SimpleNamespace:
        return SimpleNamespace(params=self.params)

    def get_closest_marker(self, name: str) -> bool:
        return self.slow and name == "slow"


def names(items: list[Item]) -> list[str]:
    return [item.nodeid for item in quick.sample(items)]  # type: ignore[arg-type]


def test_parameter_sets_are_sampled_evenly_and_slow_tests_left_out() -> None:
    items = [
        Item("a.py::f[x]"),
        Item("a.py::g", slow=True),
        Item("a.py::h"),
        *(Item(f"b.py::f[{i}]") for i in range(9)),
    ]
    assert names(items) == ["a.py::f[x]", "a.py::h", "b.py::f[0]", "b.py::f[4]", "b.py::f[8]"]


def test_every_implementation_has_one_parameter_set() -> None:
    implementations = [
        SimpleNamespace(operation=operation, name=f"triton/{i}") for operation in ("sum", "max") for i in range(4)
    ]
    items = [
        Item(f"parity.py::agrees[{each.operation}-{family}-{each.name}]", params={"implementation": each})
        for family in ("normal", "nan", "ties")
        for each in implementations
    ]
    found = quick.sample(items)  # type: ignore[arg-type]
    assert sorted((i.params["implementation"].operation, i.params["implementation"].name) for i in found) == sorted(
        (each.operation, each.name) for each in implementations
    )
    assert len({item.nodeid.split("-")[1] for item in found}) > 1, "together they cover several families"


def test_time_is_limited_for_each_file_and_in_all(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([0.0, quick.FILE_S + 1, quick.TOTAL_S - 1, quick.TOTAL_S + 1])
    monkeypatch.setattr(quick, "cpu_s", lambda: next(clock))
    tier, slow_file, other_file = quick.QuickTier(), Item("a.py::f"), Item("b.py::f")
    run = tier.pytest_runtest_protocol(slow_file)  # type: ignore[arg-type]
    next(run)
    with pytest.raises(StopIteration):
        next(run)
    with pytest.raises(pytest.skip.Exception, match="used up"):
        tier.pytest_runtest_setup(slow_file)  # type: ignore[arg-type]
    tier.pytest_runtest_setup(other_file)  # type: ignore[arg-type]
    with pytest.raises(pytest.skip.Exception, match="used up"):
        tier.pytest_runtest_setup(other_file)  # type: ignore[arg-type]
