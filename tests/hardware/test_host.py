"""The host's processor, caches and memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from suite import hardware
from suite.core.errors import UsageError
from suite.hardware import host


def test_cpu_name(tmp_path: Path) -> None:
    (tmp_path / "x86").write_text("processor\t: 0\nmodel name\t: AMD EPYC 9554\nflags\t\t: fpu\n")
    (tmp_path / "arm").write_text("processor\t: 0\nBogoMIPS\t: 50\n")
    assert host.cpu_name(tmp_path / "x86") == "AMD EPYC 9554"
    assert host.cpu_name(tmp_path / "arm")
    assert host.cpu_name(tmp_path / "none")


def test_cpu_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(host.CACHE_VARIABLE)
    for index, size in enumerate(["48K\n", "2048K\n", "105M\n", "odd\n", ""]):
        (tmp_path / f"index{index}").mkdir()
        (tmp_path / f"index{index}" / "size").write_text(size)
    assert host.cpu_cache_bytes(tmp_path) == 105 << 20
    assert host.cpu_cache_bytes(tmp_path / "none") == host.DEFAULT_CACHE_BYTES
    monkeypatch.setenv(host.CACHE_VARIABLE, "1000000")
    assert host.cpu_cache_bytes(tmp_path) == 1_000_000


@pytest.mark.parametrize("text", ["", "0", "-1", "8M"])
def test_a_cache_of_no_number_of_bytes_is_refused(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(host.CACHE_VARIABLE, text)
    with pytest.raises(UsageError, match=f"^SUITE_CACHE_BYTES={text}: must be a number of bytes$"):
        host.cpu_cache_bytes()


def test_cpu_memory() -> None:
    assert 0 < hardware.memory_bytes("cpu") <= hardware.cpu_facts()["memory_total_bytes"]


def test_instruction_sets_are_those_that_the_system_reports(tmp_path: Path) -> None:
    (tmp_path / "x86").write_text("processor\t: 0\nflags\t\t: fpu avx512_bf16\n\nprocessor\t: 1\nflags\t\t: fpu\n")
    (tmp_path / "arm").write_text("processor\t: 0\nFeatures\t: fp bf16\n")
    assert host.cpu_flags(tmp_path / "x86") == {"fpu", "avx512_bf16"}
    assert host.cpu_flags(tmp_path / "arm") == {"fp", "bf16"}
    assert host.cpu_flags(tmp_path / "none") == frozenset()
