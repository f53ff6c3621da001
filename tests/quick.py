"""The quick tier of the tests, `pytest --quick`: what one runs while working. A sample of every file, within a minute.

No list of tests is kept. The sample is:

- no test marked `slow`;
- of a test function with parameters at most `SAMPLE` parameter sets, spread evenly; if a parameter is an
  implementation, one parameter set for each implementation, so that of the parity tests every implementation runs on
  one family and dtype;
- of each test file as many tests as begin within `FILE_S`, and in all as many as begin within `TOTAL_S`. These two
  bound the time on a slow or busy machine, where tests that start processes are the first to be left out.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

SAMPLE = 3
FILE_S, TOTAL_S = 4.0, 70.0
"""In each process of pytest-xdist. TOTAL_S is since the process began, so it includes the collection of tests."""
LEFT_OUT = "left out of the quick tests: no time"


def sample(items: list[pytest.Item]) -> list[pytest.Item]:
    """The tests of the quick tier, in order, before the limits on time."""
    groups: dict[tuple[Path, str, str], list[pytest.Item]] = {}
    for item in items:
        if not item.get_closest_marker("slow"):
            function = item.nodeid.partition("[")[0]
            groups.setdefault((item.path, function, _implementation(item)), []).append(item)
    kept: set[pytest.Item] = set()
    for (_, function, implementation), group in groups.items():
        if implementation:  # another one for each implementation, so that together they cover families and dtypes
            kept.add(group[zlib.crc32(f"{function} {implementation}".encode()) % len(group)])
        else:
            count = min(SAMPLE, len(group))
            kept.update(group[i * (len(group) - 1) // max(count - 1, 1)] for i in range(count))
    return [item for item in items if item in kept]


def _implementation(item: pytest.Item) -> str:
    """The operation and name of the implementation among the test's parameters, or an empty text."""
    callspec = getattr(item, "callspec", None)
    found = callspec.params.get("implementation") if callspec is not None else None
    return f"{getattr(found, 'operation', '')} {getattr(found, 'name', found)}" if found is not None else ""


class QuickTier:
    """The pytest plugin."""

    def __init__(self) -> None:
        self.begin = time.monotonic()
        self.spent: dict[Path, float] = {}

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        kept = sample(items)
        config.hook.pytest_deselected(items=[item for item in items if item not in set(kept)])
        items[:] = kept

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        begin = time.monotonic()
        try:
            return (yield)
        finally:
            self.spent[item.path] = self.spent.get(item.path, 0.0) + time.monotonic() - begin

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        if self.spent.get(item.path, 0.0) > FILE_S or time.monotonic() - self.begin > TOTAL_S:
            pytest.skip(LEFT_OUT)
