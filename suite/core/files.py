"""Atomic writes, and the lock of a results folder."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import stat
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

from suite.core.errors import ResultsError, UsageError
from suite.core.signals import register_cleanup, uninterruptible

PART = ".part"
"""Suffix of files that are still being written."""
ANOTHER = "give another folder with --out"
REPLACE = f"{ANOTHER}, or --force to replace it"
"""The ends of messages on a file that is in the way: of commands without and with `--force`."""
MAX_SOURCE_BYTES = 4 << 20
"""Size of the largest source file of a user that is read."""
MAX_RESULT_BYTES = 256 << 20
"""Size of the largest table, record or file of samples that is read."""


def write_atomically(path: Path, text: str | bytes) -> None:
    """Replace the contents of `path` by `text` in one step: a reader sees the old file or the new one, never a mixture.

    The text is synced to disk before the function returns. Surrogates (from file names that are no UTF-8) are escaped.
    Raises `ResultsError`; the old file is then unchanged.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with uninterruptible():
            handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=PART)
            try:
                with os.fdopen(handle, "wb") as file:
                    file.write(text if isinstance(text, bytes) else text.encode("utf-8", "backslashreplace"))
                    file.flush()
                    os.fchmod(file.fileno(), 0o644)
                    os.fsync(file.fileno())
                os.replace(temporary, path)
            except BaseException:
                os.unlink(temporary)
                raise
            _sync_folder(path.parent)
    except OSError as error:
        raise ResultsError(f"cannot write {path}: {error.strerror or error}; what was there is unchanged") from error


def append(path: Path, text: str, size: int) -> int | None:
    """Append `text` to a file of `size` bytes, sync it to disk, and return its new size.

    Returns None and changes nothing if the file has another size or is gone. Raises `ResultsError`, and leaves the file
    as before, if the text cannot be written.
    """
    try:
        with uninterruptible(), path.open("r+b") as file:
            if os.fstat(file.fileno()).st_size != size:
                return None
            try:
                file.seek(size)
                written = file.write(text.encode("utf-8", "backslashreplace"))
                file.flush()
                os.fsync(file.fileno())
            except OSError:
                os.ftruncate(file.fileno(), size)
                raise
            return size + written
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ResultsError(f"cannot write {path}: {error.strerror or error}; what was there is unchanged") from error


class NotReadableError(OSError):
    """A path that is no regular file, or is larger than allowed. The text says which, without the path."""


def read_regular(path: Path, most_bytes: int) -> bytes:
    """The contents of a regular file of at most `most_bytes` bytes.

    It does not block on a pipe or read a device endlessly. Raises `NotReadableError` for such a file, else `OSError`.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # opening a pipe would wait for its writer
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise NotReadableError("is not a regular file")
        contents = file.read(most_bytes + 1)
    if len(contents) > most_bytes:
        raise NotReadableError(f"has more than {most_bytes >> 20} MiB, the most that is read")
    return contents


def read_text(path: Path) -> str:
    """The text of a table or a record, in UTF-8 with or without a byte order mark.

    Raises as `read_regular` does, and `UnicodeDecodeError`.
    """
    return read_regular(path, MAX_RESULT_BYTES).decode("utf-8-sig")


def read_source(path: Path) -> bytes:
    """The contents of a user's source file. Raises as `read_regular` does."""
    return read_regular(path, MAX_SOURCE_BYTES)


def _sync_folder(folder: Path) -> None:
    """Sync the rename itself. Errors are ignored: some file systems cannot, and the file is complete either way."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def check_writable(folder: Path) -> None:
    """Raise `UsageError` unless files can be written to `folder`, which need not exist yet. Leaves nothing there."""
    existing = next(each for each in (folder, *folder.absolute().parents) if os.path.lexists(each))
    try:
        if not existing.is_dir():
            raise UsageError(f"--out {folder}: {existing} is a file; give a folder")
        tempfile.TemporaryFile(dir=existing).close()
    except OSError as error:
        if error.errno != errno.ENOSPC:  # a full disk may have room again
            raise UsageError(
                f"cannot write results to {folder}: {error.strerror or error}; give another folder with --out"
            ) from error


def refuse_foreign(paths: Iterable[Path], is_ours: Callable[[bytes], bool], what: str, remedy: str = ANOTHER) -> None:
    """Raise `UsageError` for a path with a file that `is_ours` does not know by its contents as `what`."""
    for path in paths:
        if os.path.lexists(path) and not (path.is_file() and is_ours(path.read_bytes())):
            raise UsageError(f"{path} is not {what} and is left alone; {remedy}")


class FolderLock:
    """An exclusive lock (flock) on writing to a folder; creates the folder. The kernel frees it when the process ends.

    Raises `UsageError` if another process holds the lock or the folder cannot be used, `ResultsError` for a full disk.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / ".lock"
        check_writable(folder)
        self._descriptor: int | None = None
        self._withdraw: Callable[[], None] = lambda: None
        self._created: list[Path] = []
        try:
            with uninterruptible():
                self._acquire(folder)
        except UsageError:
            self._close()
            raise
        except OSError as error:
            if self._descriptor is not None:
                self.release()
            raise ResultsError(
                f"cannot write results to {folder}: {error.strerror or error}; give another folder with --out"
            ) from error

    def _acquire(self, folder: Path) -> None:
        self._created = _create(folder)
        while self._descriptor is None:
            self._descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
            self._take(self._descriptor)
            if not self._is_current(self._descriptor):  # the previous holder removed the file meanwhile
                self._close()
            elif not re.fullmatch(rb"[0-9]*\n?", os.pread(self._descriptor, 20, 0)):
                self._close()
                raise UsageError(f"{self.path} is not a lock of this suite and is left alone; {ANOTHER}")
        os.ftruncate(self._descriptor, 0)
        os.write(self._descriptor, f"{os.getpid()}\n".encode())
        self._withdraw = register_cleanup(self.release)

    def _take(self, descriptor: int) -> None:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(descriptor, 20).decode(errors="replace").strip()
            who = f"process {holder}" if holder.isdecimal() else "another process"
            raise UsageError(
                f"{self.path.parent}: {who} is writing results there; wait for it, or give another folder with --out"
            ) from None
        except OSError:  # the file system has no locks
            pass

    def _is_current(self, descriptor: int) -> bool:
        try:
            return os.path.samestat(os.fstat(descriptor), self.path.stat())
        except FileNotFoundError:
            return False

    def _close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def release(self) -> None:
        """Release the lock; remove its file and each folder that it created and that is still empty."""
        self._withdraw()
        with contextlib.suppress(OSError):
            self.path.unlink()
        self._close()
        for folder in self._created:
            with contextlib.suppress(OSError):
                folder.rmdir()


def _create(folder: Path) -> list[Path]:
    """Create `folder` and its missing parents. Returns the folders created, innermost first."""
    missing = [each for each in (folder, *folder.parents) if not each.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    return missing


def remove_parts(folder: Path, names: list[str]) -> None:
    """Remove partial files of `names` from killed processes. The caller must hold the folder's lock."""
    for name in names:
        for path in folder.glob(f".{name}.*{PART}"):
            with contextlib.suppress(OSError):
                path.unlink()
