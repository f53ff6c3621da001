"""Refuses to replace what a run did not write: tables of another run, and files of other programs."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Any

from suite.core.errors import UsageError
from suite.core.files import REPLACE, refuse_foreign
from suite.results import resume
from suite.results.samples import SUFFIX

KINDS = (".csv", ".md", SUFFIX, ".parquet")
"""Suffixes of the files that a run writes for each operation."""
MAPS, CODE = "maps", "code"
"""Names of the folders of error maps and of the code of kernels, inside the folder of the run."""


def refuse_replacing(folder: Path, operations: Iterable[str], begun: Collection[str] = ()) -> None:
    """Raise `UsageError` if a run of `operations` would replace a file in `folder`.

    The files of the operations `begun` are the run's own: it wrote them before it was interrupted.
    """
    refuse_foreign([folder / resume.ENVIRONMENT], _is_record, "an environment record of this suite", REPLACE)
    for name in operations:
        if name in begun:
            continue
        for path in _files(folder, name):
            if os.path.lexists(path):
                raise UsageError(f"{path} exists and is not of this run: {REPLACE}")


def _files(folder: Path, operation: str) -> Iterator[Path]:
    yield from (folder / f"{operation}{kind}" for kind in KINDS)
    yield from sorted((folder / MAPS).glob(f"{operation}-*.png"))
    yield from sorted((folder / CODE).glob(f"*/{operation}-*"))


def _is_record(contents: bytes) -> bool:
    try:
        record: Any = json.loads(contents)
        return isinstance(record["run"]["tables"], list)
    except (ValueError, RecursionError, TypeError, KeyError):
        return False
