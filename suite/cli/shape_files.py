"""Reads the file of `--shapes-from`: shapes as texts for `--shape`, or a workload that the command `shapes` wrote."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from suite.core.errors import UsageError
from suite.core.files import read_text
from suite.core.text import one_line

if TYPE_CHECKING:
    from suite.models.workload import Workload

FORMS = (
    "a CSV with a column for each dimension, a JSON or YAML list of objects as {M: 1, N: 2} or texts as M=1,N=2, or "
    "what `shapes` has written"
)


def sizes(given: Sequence[str] | None, path: Path | None) -> dict[str, Any]:
    """The fields of a `Selection` that `--shape` and `--shapes-from` set."""
    listed, workload = shapes_from(path)
    return {"shapes": (*(given or ()), *listed), "workload": workload}


def shapes_from(path: Path | None) -> tuple[list[str], Workload | None]:
    """The shapes of a `.csv`, `.json`, `.yaml` or `.yml` file, as `M=512,N=512,K=512`; empty if there is no file.

    A document with a list of `shapes` is a workload instead, which has shapes of several operations.
    Raises `UsageError` for a file that cannot be read or has another form.
    """
    if path is None:
        return [], None
    try:
        entries = _entries(path)
    except (OSError, ValueError, csv.Error, RecursionError) as error:
        raise UsageError(f"--shapes-from {path}: not readable: {one_line(error)}") from None
    if isinstance(entries, dict) and "shapes" in entries:
        from suite.models.workload import from_document

        try:
            return [], from_document(entries)
        except UsageError as error:
            raise UsageError(f"--shapes-from {path}: {error}") from None
    if not isinstance(entries, list) or not entries:
        raise UsageError(f"--shapes-from {path}: no list of shapes; give {FORMS}")
    return [_text(path, number, entry) for number, entry in enumerate(entries, 1)], None


def _entries(path: Path) -> Any:
    if path.suffix == ".csv":
        return list(csv.DictReader(io.StringIO(read_text(path), newline=""), strict=True))
    text = read_text(path)
    if path.suffix == ".json":
        return json.loads(text)
    if path.suffix in (".yaml", ".yml"):
        return _yaml(path, text)
    raise UsageError(f"--shapes-from {path}: unknown kind of file; valid are .csv, .json, .yaml")


def _yaml(path: Path, text: str) -> Any:
    try:
        import yaml  # type: ignore[import-untyped, unused-ignore]
    except ImportError:
        raise UsageError(f"--shapes-from {path}: PyYAML not installed: pip install pyyaml; or give a .json") from None
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(error) from None


def _text(path: Path, number: int, entry: Any) -> str:
    if isinstance(entry, str):
        return entry
    if isinstance(entry, Mapping) and None not in entry and None not in entry.values():
        return ",".join(f"{name}={size}" for name, size in entry.items())
    raise UsageError(f"--shapes-from {path}: entry {number} is {one_line(entry)[:60]!r}; give {FORMS}")
