"""The folders of compiled kernels. Their content is executed, so each must be private to the user.

`cuda_ref/build/cache.py` defines "private". A framework whose folder is not private does not run, and its rows say why.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from cuda_ref.build import cache


def fault(caches: Mapping[str, str]) -> str | None:
    """Reason why one of these folders is not private; None if each is private or missing. Creates nothing.

    `caches` maps an environment variable that names a folder to the folder's name below
    `$XDG_CACHE_HOME/kernel-suite`, which is used if the variable is not set.
    """
    for variable, name in caches.items():
        given = os.environ.get(variable)
        own = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "kernel-suite").absolute()
        for folder in [Path(given)] if given else [own, own / name]:
            try:
                cache.check_private(folder)
            except FileNotFoundError:
                continue
            except OSError as error:
                return f"build cache {folder}: {error.strerror}; {cache.HINT}" + _named_by(given, variable)
            except cache.BuildError as error:
                return f"{error}" + _named_by(given, variable)
    return None


def _named_by(given: str | None, variable: str) -> str:
    return f" ({variable} names it)" if given else ""


def use(caches: Mapping[str, str]) -> None:
    """Create these folders and set their variables, for this process and its children.

    A new temporary folder replaces one that cannot be created or is not private; `remove_temporary` removes it.
    """
    for variable, name in caches.items():
        try:
            if given := os.environ.get(variable):
                Path(given).mkdir(mode=0o700, parents=True, exist_ok=True)
                cache.check_private(Path(given))
            else:
                os.environ[variable] = str(cache.private(name))
        except (OSError, cache.BuildError):
            os.environ[variable] = tempfile.mkdtemp(prefix=_prefix(os.getpid()))


def remove_temporary(pid: int) -> None:
    """Remove the temporary folders that `use` made in the process `pid`, which has ended."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_prefix(pid)}*"):
        with contextlib.suppress(OSError):
            if folder.lstat().st_uid == os.geteuid():
                shutil.rmtree(folder, ignore_errors=True)


def _prefix(pid: int) -> str:
    return f"suite-cache-{pid}-"
