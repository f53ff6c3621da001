"""Names the folders of runs: `results/<device>/runs/<date>-<operations>/`. The link `latest` names the last one.

The committed tables directly in `results/<device>/` are written only with `--publish`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from itertools import count
from pathlib import Path

RUNS, LATEST = "runs", "latest"
MAX_NAMED = 3
"""The largest number of operations in the name of a folder. The others are counted."""


def new(device_folder: Path, operations: Sequence[str]) -> Path:
    """The folder for a run that begins now. It does not exist yet."""
    stem = f"{datetime.now(UTC):%Y-%m-%dT%H%M%S}-{_operations_text(operations)}"
    names = (stem if number == 1 else f"{stem}.{number}" for number in count(1))
    return next(path for name in names if not (path := device_folder / RUNS / name).exists())


def last_or_new(device_folder: Path, operations: Sequence[str]) -> Path:
    """The folder of the last run of these operations, or a new one if there is none."""
    ending = f"-{_operations_text(operations)}"
    with suppress(OSError):
        found = [path for path in (device_folder / RUNS).iterdir() if _without_number(path.name).endswith(ending)]
        if found:
            return max(found, key=lambda path: path.name)
    return new(device_folder, operations)


def set_latest(run: Path) -> None:
    """Make the link `latest` point to `run`. Without effect on a file system that has no links."""
    if run.parent.name != RUNS:
        return
    link = run.parent.parent / LATEST
    beside = link.with_name(f".{LATEST}.{os.getpid()}")
    if link.exists() and not link.is_symlink():  # a file of the user's
        return
    with suppress(OSError):
        beside.unlink(missing_ok=True)
        beside.symlink_to(Path(RUNS) / run.name)
        os.replace(beside, link)


def _operations_text(operations: Sequence[str]) -> str:
    return "+".join(operations) if len(operations) <= MAX_NAMED else f"{len(operations)}-operations"


def _without_number(name: str) -> str:
    stem, _, number = name.rpartition(".")
    return stem if number.isdecimal() else name
