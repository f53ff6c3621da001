"""The build cache: it must be private, and keeps complete builds only."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from cuda_ref import build
from cuda_ref.build import cache as _cache


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache for one test."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "kernel-suite" / "cuda"


def test_the_cache_is_created_private(cache: Path) -> None:
    assert _cache.root() == cache
    assert stat.S_IMODE(cache.stat().st_mode) == 0o700
    assert stat.S_IMODE(cache.parent.stat().st_mode) == 0o700


@pytest.mark.parametrize("folder", ["cuda", "kernel-suite"])
def test_a_cache_writable_by_others_is_refused(cache: Path, folder: str) -> None:
    _cache.root()
    (cache if folder == "cuda" else cache.parent).chmod(0o777)
    with pytest.raises(build.BuildError, match=r"can be written by other users \(mode 0777\)"):
        _cache.root()


def test_a_cache_that_cannot_be_created_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file" / "below"))
    with pytest.raises(build.BuildError, match="Not a directory; set XDG_CACHE_HOME"):
        _cache.root()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to another user")
def test_a_cache_of_another_user_is_refused(cache: Path) -> None:
    os.chown(_cache.root(), 12345, 12345)
    with pytest.raises(build.BuildError, match=r"belongs to user 12345, not to you \(0\)"):
        _cache.root()


def test_a_symbolic_link_is_refused(cache: Path, tmp_path: Path) -> None:
    _cache.root().rmdir()
    cache.symlink_to(tmp_path)
    with pytest.raises(build.BuildError, match="is not a folder"):
        _cache.root()


def test_a_failed_build_leaves_nothing(cache: Path) -> None:
    def fails(folder: Path) -> None:
        (folder / "something").touch()
        raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"):
        _cache.entry("key", fails)
    assert [each.name for each in cache.iterdir()] == ["key.lock"]
    assert (_cache.entry("key", lambda folder: (folder / "something").touch()) / "something").exists()


def make(text: str) -> Callable[[Path], None]:
    """Fills an entry with a library of that text."""

    def write(folder: Path) -> None:
        (folder / "library.so").write_bytes(text.encode())

    return write


DAMAGES: dict[str, Callable[[Path], object]] = {
    "truncated": lambda path: os.truncate(path, 3),
    "same size": lambda path: path.write_bytes(b"wrong"),
    "missing": lambda path: path.unlink(),
    "no checksums": lambda path: (path.parent / _cache.CHECKSUMS).unlink(),
    "damaged checksums": lambda path: (path.parent / _cache.CHECKSUMS).write_bytes(b"\xff"),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
def test_a_damaged_entry_is_built_again(damage: Callable[[Path], object], cache: Path) -> None:
    """Loading a truncated library is a bus error, which no exception reports."""
    path = _cache.entry("key", make("right")) / "library.so"
    assert _cache.entry("key", make("not called")) == path.parent
    assert path.read_bytes() == b"right"
    damage(path)
    assert _cache.entry("key", make("built again")) == path.parent
    assert path.read_bytes() == b"built again"
    assert sorted(each.name for each in cache.iterdir()) == ["key", "key.lock"]


def test_an_entry_is_on_disk_before_it_has_its_name(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    fsync = os.fsync

    def note(descriptor: int) -> None:
        synced.append(Path(os.readlink(f"/proc/self/fd/{descriptor}")).name)
        assert not (cache / "key").exists() or synced[-1] == cache.name
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", note)
    _cache.entry("key", make("right"))
    assert {"library.so", _cache.CHECKSUMS} <= set(synced)
    assert synced[-1] == cache.name
