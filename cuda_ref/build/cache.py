"""The build cache: a private folder `<cache>/<key>/` for each library, shared by all processes of one user.

A folder is filled under a temporary name, synced to disk, and renamed when it is complete, so that no process sees an
incomplete one. It holds the sizes and SHA-256 of its files; if a file differs, the folder is built again.
A build holds a flock. The system releases it when the process ends, so a killed process blocks no other one. All
files here may be deleted at any time.
"""

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

LOCK_TIMEOUT_S = 300.0  # then the other build counts as hung; a second build beside it is safe
CHECKSUMS = "checksums.json"
HINT = "set XDG_CACHE_HOME to a folder of your own"
STALE_S = 3600.0  # an unfinished build of this age is removed


class BuildError(RuntimeError):
    """A .cu cannot be built: a compiler is missing or failed, or the cache folder is not private."""


def root() -> Path:
    """The folder of the cache, $XDG_CACHE_HOME/kernel-suite/cuda. Raises BuildError unless it is private."""
    return private("cuda")


def private(name: str) -> Path:
    """The folder $XDG_CACHE_HOME/kernel-suite/<name>, created on first use.

    Raises BuildError unless it is private: code in it is executed.
    """
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(base).absolute()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for part in ("kernel-suite", name):
            folder /= part
            with contextlib.suppress(FileExistsError):
                folder.mkdir(mode=0o700)
            check_private(folder)
    except OSError as error:
        raise BuildError(f"build cache {folder}: {error.strerror}; {HINT}") from None
    return folder


def check_private(folder: Path) -> None:
    """Raises BuildError unless `folder` is a folder that belongs to this user and that only this user can write."""
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode):
        raise BuildError(f"build cache {folder} is not a folder: remove it, or set XDG_CACHE_HOME to another place")
    if status.st_uid != os.geteuid():
        raise BuildError(
            f"build cache {folder} belongs to user {status.st_uid}, not to you ({os.geteuid()}): "
            f"code in it would run as you; {HINT}"
        )
    if status.st_mode & 0o022:
        raise BuildError(
            f"build cache {folder} can be written by other users (mode {stat.S_IMODE(status.st_mode):04o}): "
            f"code in it would run as you; chmod 700 {folder} if you trust what it holds, or remove it"
        )


def entry(key: str, make: Callable[[Path], None]) -> Path:
    """The cached folder `key`.

    Args:
        key: name of the folder.
        make: called with an empty folder to fill, if `key` does not exist yet.

    Raises:
        whatever `make` raises; nothing is kept then.
    """
    cache = root()
    folder = cache / key
    if _is_intact(folder):
        return folder
    with _locked(cache / f"{key}.lock"):
        if _is_intact(folder):  # another process has built it meanwhile
            return folder
        discard(key)
        _remove_stale(cache)
        temporary = Path(tempfile.mkdtemp(prefix=".building-", dir=cache))
        try:
            make(temporary)
            _seal(temporary)
            try:
                temporary.rename(folder)
            except OSError:
                if not folder.exists():  # otherwise another process was faster, with an equal result
                    raise
            _sync(cache)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
    return folder


def _seal(folder: Path) -> None:
    """Writes sizes and SHA-256 of all files in `folder`, and syncs all of it to disk."""
    sums = {name: _checksum(path) for name, path in _files(folder)}
    (folder / CHECKSUMS).write_text(json.dumps(sums, indent=1) + "\n")
    for path in (*folder.rglob("*"), folder):
        _sync(path)


def _is_intact(folder: Path) -> bool:
    """True if `folder` exists and holds the files that its checksums name."""
    try:
        sums = json.loads((folder / CHECKSUMS).read_text())
        return bool(sums == {name: _checksum(path) for name, path in _files(folder)})
    except (OSError, ValueError):
        return False


def _files(folder: Path) -> Iterator[tuple[str, Path]]:
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.name != CHECKSUMS:
            yield str(path.relative_to(folder)), path


def _checksum(path: Path) -> list[int | str]:
    contents = path.read_bytes()
    return [len(contents), hashlib.sha256(contents).hexdigest()]


def _sync(path: Path) -> None:
    """Syncs a file or a folder to disk. Ignores errors, because some file systems cannot sync a folder."""
    with contextlib.suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def discard(key: str) -> None:
    """Removes the folder `key`, for example because it is damaged."""
    discarded = root() / f".building-{key}-{os.getpid()}"
    with contextlib.suppress(FileNotFoundError):
        (root() / key).rename(discarded)
    shutil.rmtree(discarded, ignore_errors=True)


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        deadline = time.monotonic() + LOCK_TIMEOUT_S
        while time.monotonic() < deadline:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                time.sleep(0.02)
            except OSError:  # a file system without locks
                break
        yield
    finally:
        os.close(descriptor)


def _remove_stale(cache: Path) -> None:
    """Removes unfinished builds of killed processes."""
    for path in cache.glob(".building-*"):
        with contextlib.suppress(OSError):
            if time.time() - path.stat().st_mtime > STALE_S:
                shutil.rmtree(path, ignore_errors=True)
