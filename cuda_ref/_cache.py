"""Private folders of built libraries: `<cache>/<key>/`, complete or absent, shared by all processes of one user.

A folder is made under a temporary name and renamed when it is whole, so nobody ever sees half of one. Building is
guarded by flock, which the system drops with the process that held it: nothing that a killed process leaves behind can
block the next. Everything here may be deleted at any time.
"""

import contextlib
import fcntl
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

PATIENCE_S = 300.0  # a build held longer than this is hung: build beside it, renaming makes that safe
ABANDONED_S = 3600.0


class BuildError(RuntimeError):
    """A .cu could not be built: a compiler is missing or failed, or the cache cannot be trusted."""


def root() -> Path:
    """$XDG_CACHE_HOME/kernel-suite/cuda."""
    return private("cuda")


def private(name: str) -> Path:
    """$XDG_CACHE_HOME/kernel-suite/<name>, made on first use. What is in it gets run, so it must be private."""
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
        raise BuildError(
            f"build cache {folder}: {error.strerror}; set XDG_CACHE_HOME to a folder of your own"
        ) from None
    return folder


def check_private(folder: Path) -> None:
    """Raises BuildError for a folder that is none, belongs to someone else, or can be written by others."""
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode):
        raise BuildError(f"build cache {folder} is not a folder: remove it, or set XDG_CACHE_HOME to another place")
    if status.st_uid != os.geteuid():
        raise BuildError(
            f"build cache {folder} belongs to user {status.st_uid}, not to you ({os.geteuid()}): "
            "code in it would run as you; set XDG_CACHE_HOME to a folder of your own"
        )
    if status.st_mode & 0o022:
        raise BuildError(
            f"build cache {folder} can be written by other users (mode {stat.S_IMODE(status.st_mode):04o}): "
            f"code in it would run as you; chmod 700 {folder} if you trust what it holds, or remove it"
        )


def entry(key: str, make: Callable[[Path], None]) -> Path:
    """The folder `key`, filled by `make` where it does not exist. Raises what `make` raises, and then keeps nothing."""
    cache = root()
    folder = cache / key
    if folder.exists():
        return folder
    with _held(cache / f"{key}.lock"):
        if folder.exists():  # made by another process while this one waited
            return folder
        _sweep(cache)
        temporary = Path(tempfile.mkdtemp(prefix=".making-", dir=cache))
        try:
            make(temporary)
            try:
                temporary.rename(folder)
            except OSError:
                if not folder.exists():  # otherwise someone else was faster: theirs is as good
                    raise
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
    return folder


def discard(key: str) -> None:
    """Forgets `key`, for a folder that proved unusable."""
    doomed = root() / f".making-{key}-{os.getpid()}"
    with contextlib.suppress(FileNotFoundError):
        (root() / key).rename(doomed)
    shutil.rmtree(doomed, ignore_errors=True)


@contextlib.contextmanager
def _held(path: Path) -> Iterator[None]:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        deadline = time.monotonic() + PATIENCE_S
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


def _sweep(cache: Path) -> None:
    """Removes what killed builds left."""
    for path in cache.glob(".making-*"):
        with contextlib.suppress(OSError):
            if time.time() - path.stat().st_mtime > ABANDONED_S:
                shutil.rmtree(path, ignore_errors=True)
