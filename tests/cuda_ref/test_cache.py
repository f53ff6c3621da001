"""The build cache: it must be private, and keeps complete builds only."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from cuda_ref import _cache, build


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
