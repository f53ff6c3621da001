"""Where frameworks keep what they compile: what lies there is run, so each folder must be the user's own.

`cuda_ref/_cache.py` says what that means. A framework whose folder is not private is not run, and its rows say why.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

from cuda_ref import _cache


def fault(caches: Mapping[str, str]) -> str | None:
    """Why one of these folders cannot be trusted; None if all can, or are not there yet. Makes nothing.

    `caches` has the variables of the environment that name folders, and the folders' names below
    `$XDG_CACHE_HOME/kernel-suite` where a variable is not set.
    """
    for variable, name in caches.items():
        given = os.environ.get(variable)
        own = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "kernel-suite").absolute()
        for folder in [Path(given)] if given else [own, own / name]:
            try:
                _cache.check_private(folder)
            except FileNotFoundError:
                continue
            except OSError as error:
                return f"build cache {folder}: {error.strerror}"
            except _cache.BuildError as error:
                return f"{error}" + (f" ({variable} names it)" if given else "")
    return None


def use(caches: Mapping[str, str]) -> None:
    """Make these folders and set their variables, for this process and its children. One that cannot be made, or not be
    trusted, is replaced by an empty one.
    """
    for variable, name in caches.items():
        try:
            if given := os.environ.get(variable):
                Path(given).mkdir(mode=0o700, parents=True, exist_ok=True)
                _cache.check_private(Path(given))
            else:
                os.environ[variable] = str(_cache.private(name))
        except (OSError, _cache.BuildError):
            os.environ[variable] = tempfile.mkdtemp(prefix="suite-cache-")
