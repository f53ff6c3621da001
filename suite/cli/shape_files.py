"""Reads the file of `--shapes-from`: shapes as texts for `--shape`, or a workload that the command `shapes` wrote."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from suite import ops
from suite.core.errors import UsageError
from suite.core.files import read_text
from suite.core.text import one_line
from suite.problem.shape import is_size

if TYPE_CHECKING:
    from suite.models.workload import Workload

FORMS = (
    "a CSV with a column for each dimension, a JSON or YAML list of objects as {M: 1, N: 2} or texts as M=1,N=2, or "
    "what `shapes` has written"
)


Entry = tuple[str, str]
"""A shape as a text for `--shape`, and its place in the file: `line 3`, `entry 2`."""


def sizes(
    given: Sequence[str] | None, path: Path | None, operations: Sequence[str] = (), layers: Sequence[Workload] = ()
) -> dict[str, Any]:
    """The fields of a `Selection` that `--shape`, `--shapes-from` and `--model` set, for these operations.

    `layers` are those of `--model`. Raises `UsageError` if a model's shapes come from both.
    """
    listed, workload = shapes_from(path, operations)
    if path is not None and layers:
        raise UsageError(f"--model defines the shapes; leave out --shapes-from {path}")
    return {"shapes": (*(given or ()), *listed), "workloads": (*layers, *([] if workload is None else [workload]))}


def shapes_from(path: Path | None, operations: Sequence[str] = ()) -> tuple[list[str], Workload | None]:
    """The shapes of a `.csv`, `.json`, `.yaml` or `.yml` file, as `M=512,N=512,K=512`; empty if there is no file.

    A document with a list of `shapes` is a workload instead, which has shapes of several operations.
    Raises `UsageError` for a file that cannot be read, has another form, or has shapes that a single operation of
    `operations` does not have.
    """
    if path is None:
        return [], None
    try:
        found = _csv(path) if path.suffix == ".csv" else _document(path)
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(f"--shapes-from {path}: not readable: {one_line(error)}") from None
    if not isinstance(found, list):
        return [], found
    if not found:
        raise UsageError(f"--shapes-from {path}: no list of shapes; give {FORMS}")
    _check_dimensions(path, found, operations)
    return [text for text, _ in found], None


def _check_dimensions(path: Path, entries: Sequence[Entry], operations: Sequence[str]) -> None:
    """Raise `UsageError`, with its place in the file, for a shape that the operation does not have."""
    names = dict.fromkeys(name for pattern in operations for name in ops.matching(pattern))
    if len(names) != 1:
        return
    op = ops.get(next(iter(names)))
    for text, place in entries:
        try:
            op.parse_shapes(text)
        except UsageError as error:
            reason = str(error).removeprefix(f"--shape {text!r}: ")
            raise UsageError(f"--shapes-from {path}, {place}: {reason}") from None


def _csv(path: Path) -> list[Entry]:
    """The shapes of a CSV. Raises `UsageError` with the line and the column of a cell that is no size."""
    found = []
    records = csv.reader(io.StringIO(read_text(path), newline=""), strict=True)
    try:
        header = [name.strip() for name in next(records, [])]
        for record in filter(None, records):
            place = f"line {records.line_num}"
            cells = dict(zip(header, map(str.strip, record), strict=False))
            bad = next((name for name, value in cells.items() if not is_size(value)), None)
            if bad is not None:
                place += f", column {one_line(bad)}"
                raise UsageError(f"--shapes-from {path}, {place}: {one_line(cells[bad])[:60]!r} is not a whole number")
            if len(record) != len(header):
                place += f", column {min(len(record), len(header)) + 1}"
                raise UsageError(f"--shapes-from {path}, {place}: {len(record)} fields instead of {len(header)}")
            found.append((",".join(f"{name}={size}" for name, size in cells.items()), place))
    except csv.Error as error:
        raise UsageError(f"--shapes-from {path}, line {records.line_num}: {one_line(error)}") from None
    return found


def _document(path: Path) -> list[Entry] | Workload:
    """The shapes of a JSON or YAML file, or its workload."""
    entries = _entries(path)
    if isinstance(entries, dict) and "shapes" in entries:
        from suite.models.workload import from_document

        try:
            return from_document(entries)
        except UsageError as error:
            raise UsageError(f"--shapes-from {path}: {error}") from None
    if not isinstance(entries, list):
        return []
    return [(_text(path, number, entry), f"entry {number}") for number, entry in enumerate(entries, 1)]


def _entries(path: Path) -> Any:
    text = read_text(path)
    if path.suffix == ".json":
        return json.loads(text)
    if path.suffix in (".yaml", ".yml"):
        return _yaml(path, text)
    kinds = (".csv", ".json", ".yaml")
    raise UsageError(f"--shapes-from {path}: unknown kind of file; valid are {', '.join(kinds)}")


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
