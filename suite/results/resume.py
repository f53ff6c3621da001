"""What an interrupted run has to have in common with the one that continues it, and what it leaves to be done.

`environment.json` of a results folder ends in the state of the run that it describes:

    "run": {"complete": false, "tables": ["matmul"], "settings": {...}}

`tables` are the operations whose CSV holds this run's rows; any other CSV in the folder is of an earlier run.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from suite.core.errors import ResultsError, UsageError
from suite.core.paths import ROOT
from suite.core.text import one_line
from suite.hardware.device import Device
from suite.results.row import Key, Row, read_rows

ENVIRONMENT = "environment.json"
WITHOUT_EFFECT = frozenset(("as_json", "device", "out", "resume", "timeout"))
"""Options of `compare` that do not decide what a row says, or are told by what they lead to."""
SOURCES = ("suite", "triton_kernels", "jax_impls", "cuda_ref", "torch_impls", "numpy_impls")
SUFFIXES = frozenset((".py", ".cu", ".cuh", ".h"))
SHOWN_DIFFERENCES = 4


@dataclass(frozen=True)
class Found:
    """An interrupted run: its environment record, and its rows by operation."""

    environment: dict[str, Any]
    rows: dict[str, dict[Key, Row]]


def settings(options: Mapping[str, Any], where: Device, environment: Mapping[str, Any]) -> dict[str, Any]:
    """All that two runs must share for their rows to stand in one table: JSON-able, and readable."""
    chosen = {name: _plain(value) for name, value in sorted(options.items()) if name not in WITHOUT_EFFECT}
    return {
        "options": {name: value for name, value in chosen.items() if value not in (None, False, [])},
        "device": {"place": str(where), "name": where.name, "driver": environment.get("device", {}).get("driver")},
        "versions": {"python": environment.get("python"), **environment.get("packages", {})},
        "toolkits": dict(environment.get("toolkits", {})),
        "code": {"digest": code_digest()},
    }


def _plain(value: Any) -> Any:
    if isinstance(value, Path):
        return {"file": str(value), "digest": _digest([value])}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return value if value is None or isinstance(value, str | int | float | bool) else str(value)


def code_digest(root: Path = ROOT) -> str:
    """Changes with any source file of the suite or of a kernel."""
    return _digest(path for folder in SOURCES for path in sorted((root / folder).rglob("*")) if path.suffix in SUFFIXES)


def _digest(paths: Iterable[Path]) -> str:
    everything = hashlib.sha256()
    for path in paths:
        try:
            contents = path.read_bytes()
        except OSError:
            contents = b"unreadable"
        everything.update(f"{path.name} {len(contents)}\n".encode("utf-8", "backslashreplace") + contents)
    return everything.hexdigest()[:16]


def find(folder: Path, operations: Iterable[str], wanted: Mapping[str, Any]) -> Found | None:
    """The run that `folder` holds, None if it holds none.

    Raises `UsageError` for a run of other settings than `wanted`, `ResultsError` for files that are damaged.
    """
    path = folder / ENVIRONMENT
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        present = [name for name in operations if (folder / f"{name}.csv").exists()]
        if present:
            raise UsageError(
                f"--resume: {folder} has {present[0]}.csv, but no {ENVIRONMENT} that says of what run; "
                "without --resume it is made anew"
            ) from None
        return None
    except (OSError, ValueError, RecursionError) as error:
        raise ResultsError(f"{path}: not a readable environment record: {one_line(repr(error))}") from error
    state = record.get("run") if isinstance(record, dict) else None
    if not isinstance(state, dict) or not isinstance(state.get("tables"), list):
        raise UsageError(
            f"--resume: {path} does not say what its run was for (an older version?); without --resume it is made anew"
        )
    if found := list(_differences(state.get("settings"), json.loads(json.dumps(wanted)))):
        shown = one_line("; ".join(found[:SHOWN_DIFFERENCES]))
        more = f"; and {len(found) - SHOWN_DIFFERENCES} more" if len(found) > SHOWN_DIFFERENCES else ""
        raise UsageError(
            f"--resume: {folder} holds a run of other settings: {shown}{more}; without --resume it is made anew"
        )
    return Found(record, {name: _rows(folder, name) for name in operations if name in state["tables"]})


def _differences(before: Any, now: Mapping[str, Any]) -> Iterator[str]:
    """In words, what the settings of a run were and what they are."""
    groups = [_flat(each) for each in (before, now)]
    for name in {**groups[1], **groups[0]}:
        then, today = (group.get(name) for group in groups)
        if then == today:
            continue
        if name == "code digest":
            yield "the code of the suite or of a kernel has changed since"
        else:
            yield f"{name} {_shown(then)} there, {_shown(today)} now"


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
    for place, row in enumerate(read_rows(path), 1):
        damage = f"it is of {row.operation}" if row.operation != operation else ""
        if damage or row.key in rows:
            damage = damage or "there is another row like it"
            raise ResultsError(f"{path}: not a results table, or a damaged one: row {place}: {one_line(damage)}")
        rows[row.key] = row
    return rows
