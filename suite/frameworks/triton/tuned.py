"""Writes the files of tuned configurations for `python -m suite tune`.

`triton_kernels/_runtime/tuned.py` defines their form, and reads them for the kernels.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from suite.core.errors import ResultsError
from suite.core.files import write_atomically
from triton_kernels._runtime import tuned as _tuned
from triton_kernels._runtime.tuned import HEAD, Entry, Scalar

__all__ = ["SPACE", "Entry", "Scalar", "add", "find", "path_for", "read", "write"]

SPACE = "tuning_space"
"""Name of the function in a kernel's file that lists the candidates of a search: `tuning_space(arguments, **constants)`
returns configurations for these arguments of the kernel."""


def path_for(device: str) -> Path:
    """The file for the device of that name and the installed version of Triton."""
    return _tuned.path_for(device, _tuned.version())


def find(device: str) -> list[Entry]:
    """The entries for this device. Raises `ResultsError` as `read` does."""
    return read(path_for(device), device, _tuned.version())


def add(entries: Iterable[Entry], device: str, driver: str) -> None:
    """Add entries to the file of this device. They replace earlier entries with the same key."""
    kept = {each.full_key: each for each in (*find(device), *entries)}
    write(path_for(device), kept.values(), device=device, version=_tuned.version(), driver=driver)


def read(path: Path, device: str, version: str) -> list[Entry]:
    """The entries of a file; none if there is no file.

    Raises `ResultsError` for a file that cannot be read, is damaged, or is of another device or version.
    """
    try:
        return _tuned.read(path, device, version)
    except ValueError as error:
        raise ResultsError(str(error)) from error


def write(path: Path, entries: Iterable[Entry], *, device: str, version: str, driver: str) -> None:
    """Write the file: sorted, one entry a line. Raises `ResultsError` if it cannot be written."""
    facts = zip(HEAD, (device, version, driver), strict=True)
    head = "".join(f" {json.dumps(name)}: {json.dumps(value)},\n" for name, value in facts)
    body = ",\n".join(f"  {json.dumps(asdict(each))}" for each in sorted(entries, key=_rank))
    write_atomically(path, f'{{\n{head} "entries": [\n{body}\n ]\n}}\n')


def _rank(entry: Entry) -> tuple[Any, ...]:
    """Sort key that orders numbers by size, not by digits."""
    return entry.kernel, entry.dtypes, [(type(value).__name__, value) for value in entry.key.values()]
