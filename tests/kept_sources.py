"""Sources of tests in the cache of builds.

A library is known by the path of its source too, so a source in a temporary folder would be built in each run.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

from cuda_ref.build import cache


def kept_folder(files: Mapping[str, str]) -> Path:
    """The folder with these files, by their paths in it. The same files are in the same folder in each run."""

    def write(folder: Path) -> None:
        for name, text in files.items():
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_text(text, encoding="utf-8")

    key = hashlib.sha256(repr(sorted(files.items())).encode()).hexdigest()[:32]
    return cache.entry(f"sources-{key}", write)


def kept_source(name: str, text: str) -> Path:
    """The path of a file of that name with that text."""
    return kept_folder({name: text}) / name
