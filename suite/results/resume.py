"""Continues an interrupted run. Both runs must have the same settings; finished rows are not run again.

`environment.json` of a results folder ends with the state of the run that it describes:

    "run": {"complete": false, "tables": ["matmul"], "begun": ["matmul"], "settings": {...}}

`tables` are the operations whose CSV has rows of this run, `begun` those whose files it may replace. Any other CSV in
the folder is from an earlier run, whose record, without its own `earlier`, stands in `earlier` under the operation's
name.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from suite import frameworks
from suite.core import file_version
from suite.core.errors import ResultsError, UsageError
from suite.core.files import read_source, read_text
from suite.core.paths import ROOT
from suite.core.text import one_line
from suite.hardware.device import Device
from suite.results.csv_file import read_rows
from suite.results.row import Key, Row

ENVIRONMENT = "environment.json"
EARLIER = "earlier"
WITHOUT_EFFECT = frozenset(
    (
        "as_json",
        "baseline",
        "cluster",
        "columns",
        "commit",
        "count",
        "device",
        "dump",
        "file_format",
        "force",
        "insecure",
        "once",
        "out",
        "profile",
        "publish",
        "quiet",
        "resume",
        "sort",
        "strict",
        "timeout",
        "wide",
    )
)
"""Options of `compare` that do not affect measurements, or that the settings record elsewhere (`device`)."""
SUFFIXES = frozenset((".py", ".cu", ".cuh", ".h"))
TEMPLATES = "templates"
"""Name of folders in which every file counts as source code, whatever its suffix."""
SHOWN_DIFFERENCES = 4


@dataclass(frozen=True)
class PreviousRun:
    """The contents of a results folder: the environment record, and the rows by operation and key."""

    environment: dict[str, Any]
    rows: dict[str, dict[Key, Row]]


def settings(options: Mapping[str, Any], device: Device, environment: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that two runs must share for their rows to stand in one table: options, device, versions, code.

    `options` are the parameters of `compare` by name, `environment` is the environment record. Returns JSON values.
    """
    chosen = {name: _plain(value) for name, value in sorted(options.items()) if name not in WITHOUT_EFFECT}
    return {
        "options": {name: value for name, value in chosen.items() if value not in (None, False, [])},
        "device": {"place": str(device), "name": device.name, "driver": environment.get("device", {}).get("driver")},
        "versions": {"python": environment.get("python"), **environment.get("packages", {})},
        "toolkits": dict(environment.get("toolkits", {})),
        "code": {"digest": code_digest()},
    }


def _plain(value: Any) -> Any:
    if isinstance(value, Path):
        return {"file": str(value), "digest": _file_digest(value)}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return value if value is None or isinstance(value, str | int | float | bool) else str(value)


def _file_digest(path: Path) -> str:
    """A hash of a user's file and of the files beside it that it imports."""
    try:
        return file_version.digest_of(path, read_source(path))
    except (OSError, ValueError):
        return "unreadable"


def source_folders() -> list[str]:
    """The folders whose code affects the contents of a row: the suite, and the kernels of each framework."""
    return ["suite", *sorted({frameworks.get(name).folder for name in frameworks.names()})]


def code_digest(root: Path = ROOT) -> str:
    """A hash of every source file of the suite and of the kernels, with their paths."""
    paths = [path for folder in source_folders() for path in sorted((root / folder).rglob("*")) if _is_source(path)]
    return _digest((str(path.relative_to(root)), path) for path in paths)


def _is_source(path: Path) -> bool:
    if "__pycache__" in path.parts:
        return False
    return path.suffix in SUFFIXES or (TEMPLATES in path.parts and path.is_file())


def _digest(files: Iterable[tuple[str, Path]]) -> str:
    everything = hashlib.sha256()
    for name, path in files:
        try:
            contents = path.read_bytes()
        except OSError:
            contents = b"unreadable"
        everything.update(f"{name} {len(contents)}\n".encode("utf-8", "backslashreplace") + contents)
    return everything.hexdigest()[:16]


def find(folder: Path, operations: Iterable[str], wanted: Mapping[str, Any]) -> PreviousRun | None:
    """The run in `folder`, with its rows of `operations`; None for a folder without a run.

    `wanted` are the `settings` that it must have. Raises `UsageError` for a run with other settings, `ResultsError`
    for damaged files.
    """
    record = _environment(folder, operations)
    if record is None:
        return None
    state = record.get("run") if isinstance(record, dict) else None
    if not isinstance(state, dict) or not isinstance(state.get("tables"), list):
        raise UsageError(
            f"--resume: {folder / ENVIRONMENT} does not say what its run was for (an older version?); "
            "with --force instead the run starts anew"
        )
    for name in ("device", "packages"):
        if not isinstance(record.get(name, {}), dict):
            raise ResultsError(
                f"{folder / ENVIRONMENT}: not a readable environment record: {name} is "
                f"{one_line(json.dumps(record[name]))[:60]}, not an object; with --force instead the run starts anew"
            )
    if found := list(_differences(state.get("settings"), json.loads(json.dumps(wanted)))):
        shown = one_line("; ".join(found[:SHOWN_DIFFERENCES]))
        more = f"; and {len(found) - SHOWN_DIFFERENCES} more" if len(found) > SHOWN_DIFFERENCES else ""
        raise UsageError(
            f"--resume: {folder} holds a run of other settings: {shown}{more}; with --force instead the run starts anew"
        )
    return PreviousRun(record, {name: _rows(folder, name) for name in operations if name in state["tables"]})


def table_records(folder: Path) -> dict[str, Any]:
    """The environment record of each table in a folder, by operation; empty if the file cannot be read."""
    try:
        record = json.loads(read_text(folder / ENVIRONMENT))
        earlier = record.pop(EARLIER, {})
        found = {**earlier, **dict.fromkeys(record["run"]["tables"], record)}
    except (OSError, ValueError, RecursionError, TypeError, KeyError, AttributeError):
        return {}
    return {name: each for name, each in found.items() if isinstance(each, dict) and (folder / f"{name}.csv").is_file()}


def _environment(folder: Path, operations: Iterable[str]) -> Any:
    """The parsed environment record; None if the folder has neither a record nor a table of `operations`."""
    path = folder / ENVIRONMENT
    try:
        return json.loads(read_text(path))
    except FileNotFoundError:
        present = [name for name in operations if (folder / f"{name}.csv").exists()]
        if present:
            raise UsageError(
                f"--resume: {folder} has {present[0]}.csv, but no {ENVIRONMENT} that describes its run; "
                "with --force instead the run starts anew"
            ) from None
        return None
    except (OSError, ValueError, RecursionError) as error:
        raise ResultsError(f"{path}: not a readable environment record: {one_line(repr(error))}") from error


def _differences(before: Any, now: Mapping[str, Any]) -> Iterator[str]:
    """A text for each setting that differs."""
    old, new = _flat(before), _flat(now)
    for name in {**new, **old}:
        if old.get(name) == new.get(name):
            continue
        if name == "code digest":
            yield "the code of the suite or of a kernel has changed since"
        else:
            yield f"{name} {_shown(old.get(name))} there, {_shown(new.get(name))} now"


def _flat(groups: Any) -> dict[str, Any]:
    """`{"options": {"op": ...}, "device": {"name": ...}}` as `{"--op": ..., "device name": ...}`."""
    flat: dict[str, Any] = {}
    for group, values in groups.items() if isinstance(groups, dict) else ():
        for name, value in values.items() if isinstance(values, dict) else ():
            flat[f"--{name.replace('_', '-')}" if group == "options" else f"{group} {name}"] = value
    return flat


def _shown(value: Any) -> str:
    return "not given" if value is None else json.dumps(value, ensure_ascii=False)


def _rows(folder: Path, operation: str) -> dict[Key, Row]:
    path = folder / f"{operation}.csv"
    if not path.exists():
        return {}
    rows: dict[Key, Row] = {}
    for number, row in enumerate(read_rows(path), 1):
        damage = row.damage or ("there is another row like it" if row.key in rows else "")
        damage = f"it is of {row.operation}" if row.operation != operation else damage
        if damage:
            raise ResultsError(f"{path}: not a results table, or a damaged one: row {number}: {one_line(damage)}")
        rows[row.key] = row
    return rows
