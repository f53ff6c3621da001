"""Paths of the package's files, and of results by default."""

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
"""The folder that holds `suite/` and the kernel folders."""


def results() -> Path:
    """The folder of all results: in the checkout, or in the user's data folder for an installed package.

    The working directory does not change it; a folder below the working directory is returned as a relative path.
    """
    if (ROOT / "pyproject.toml").is_file():
        folder = ROOT / "results"
    else:
        folder = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share", "kernel-suite", "results")
    here = Path.cwd()
    return folder.relative_to(here) if folder.is_relative_to(here) else folder
