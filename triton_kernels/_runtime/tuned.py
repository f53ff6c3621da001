"""Tuned configurations: `tuned/<device>/triton-<version>.json`, which `python -m suite tune` writes.

Each entry has the configuration for one full key: a kernel, the values of its key by name, and the dtypes of its
arguments. Each device and each version of Triton has its own file.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[1] / "tuned"
HEAD = ("device", "triton", "driver")
"""The first fields of a file. The driver is that of the last search, even if older entries remain."""

Scalar = bool | int | float | str | None


@dataclass(frozen=True)
class Entry:
    """The fastest configuration that a search found for one full key."""

    kernel: str
    """Module below this folder and function: `matmul.persistent.matmul_kernel`."""
    key: Mapping[str, Scalar]
    dtypes: tuple[str, ...]
    config: Mapping[str, Scalar]
    """The kernel's parameters, `num_warps`, `num_stages`, and `maxnreg` if it is limited."""
    us: float
    short_list_us: float
    """Time of the short list's choice, measured in the same rounds."""
    candidates: int
    """Number of configurations that were tried."""

    @property
    def full_key(self) -> str:
        return full_key(self.kernel, self.key, self.dtypes)


@dataclass(frozen=True)
class Entries:
    """The tuned entries of one device by full key, for this version of Triton and for others."""

    here: Mapping[str, Entry] = field(default_factory=dict)
    elsewhere: Mapping[str, tuple[Entry, ...]] = field(default_factory=dict)
    fault: str = ""
    """The reason why a file cannot be used; empty if all files can."""


def full_key(kernel: str, key: Mapping[str, Scalar], dtypes: Iterable[str]) -> str:
    """Kernel, key and dtypes as one text; equal ones have equal texts."""
    return json.dumps([kernel, dict(key), list(dtypes)], sort_keys=True)


def version() -> str:
    """The version of Triton. Another version has other tuned configurations, since its compiler differs."""
    try:
        return installed("triton")
    except PackageNotFoundError:
        return "none"


def slug(device: str) -> str:
    """A device's name as a folder name: `NVIDIA H100 80GB HBM3` becomes `nvidia-h100-80gb-hbm3`."""
    return re.sub(r"[^a-z0-9]+", "-", device.lower().replace("(r)", "").replace("(tm)", "")).strip("-") or "unknown"


def path_for(device: str, triton: str) -> Path:
    """The file for a device, given by its name, and a version of Triton."""
    return FOLDER / slug(device) / f"triton-{triton}.json"


def entries_of(device: str) -> Entries:
    """The tuned entries of a device, given by its name. Files are read once per process."""
    return _entries(path_for(device, version()), device, version())


@cache
def _entries(own: Path, device: str, triton: str) -> Entries:
    here: dict[str, Entry] = {}
    elsewhere: dict[str, tuple[Entry, ...]] = {}
    faults = []
    for path in sorted({own, *own.parent.glob("triton-*.json")}):
        try:
            entries = read(path, device, path.stem.removeprefix("triton-"))
        except ValueError as error:
            faults.append(str(error))
            continue
        for each in entries:
            if path == own:
                here[each.full_key] = each
            else:
                elsewhere[each.full_key] = (*elsewhere.get(each.full_key, ()), each)
    return Entries(here, elsewhere, "; ".join(faults))


def read(path: Path, device: str, triton: str) -> list[Entry]:
    """The entries of a file; none if there is no file. Raises `ValueError` for a file that cannot be read, that is
    damaged, or that belongs to another device or version."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        _expect(isinstance(document, dict) and set(document) == {*HEAD, "entries"}, "other fields than expected")
        _expect(isinstance(document["entries"], list), "entries must be a list")
        entries = [entry(each) for each in document["entries"]]
        _expect(len({each.full_key for each in entries}) == len(entries), "two entries have the same key")
    except FileNotFoundError:
        return []
    except (OSError, ValueError, TypeError, RecursionError) as error:
        why = " ".join(f"{type(error).__name__}: {error}".split())
        raise ValueError(f"{path}: not a readable file of tuned configurations ({why}): remove it") from error
    found = document["device"], document["triton"]
    if found != (device, triton):
        raise ValueError(
            f"{path}: tuned for {found[0]!r} with Triton {found[1]!r}; this is {device!r} with {triton!r}: remove it"
        )
    return entries


def entry(data: Any) -> Entry:
    """An entry from JSON. Raises `ValueError` for data of another form."""
    _expect(isinstance(data, dict) and set(data) == {each.name for each in fields(Entry)}, "an entry has other fields")
    _expect(isinstance(data["kernel"], str), "kernel must be a text")
    for name in ("key", "config"):
        scalars = isinstance(data[name], dict) and all(isinstance(v, Scalar) for v in data[name].values())
        _expect(scalars, f"{name} must be names with numbers or texts")
    dtypes = data["dtypes"]
    _expect(isinstance(dtypes, list) and all(isinstance(each, str) for each in dtypes), "dtypes must be texts")
    for name in ("us", "short_list_us", "candidates"):
        number = data[name]
        valid = isinstance(number, int | float) and not isinstance(number, bool) and 0 < number < math.inf
        _expect(valid, f"{name} must be a positive number")
    return Entry(**{**data, "dtypes": tuple(dtypes)})


def _expect(true: bool, otherwise: str) -> None:
    if not true:
        raise ValueError(otherwise)
