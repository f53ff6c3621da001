"""Sizes of large arrays."""

from __future__ import annotations

import pytest

from suite.hardware.device import array_bytes


@pytest.mark.parametrize(
    ("free", "expected"), [(None, 8 << 30), (140 << 30, 8 << 30), (24 << 30, 1 << 30), (1 << 30, 1 << 26), (0, 1 << 16)]
)
def test_arrays_fit_into_memory(free: int | None, expected: int) -> None:
    assert array_bytes(8 << 30, free) == expected
