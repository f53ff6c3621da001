"""Free host memory."""

from __future__ import annotations

from pathlib import Path

from suite import hardware


def test_free_memory_is_that_of_the_tightest_container(tmp_path: Path) -> None:
    (tmp_path / "self").write_text("0::/box/inner\n", encoding="ascii")
    inner = tmp_path / "groups" / "box" / "inner"
    inner.mkdir(parents=True)
    (inner / "memory.max").write_text("max\n", encoding="ascii")
    (inner.parent / "memory.max").write_text("1000000\n", encoding="ascii")
    (inner.parent / "memory.current").write_text("600000\n", encoding="ascii")
    (inner.parent / "memory.stat").write_text("anon 5\ninactive_file 100000\n", encoding="ascii")
    assert hardware.free_host_bytes(tmp_path / "self", tmp_path / "groups") == 500000
    assert (hardware.free_host_bytes(tmp_path / "none", tmp_path / "none") or 0) > 500000
