"""Tuned configurations: `triton_kernels/tuned/<device>/triton-<version>.json`, written by `python -m suite tune`.

Each entry answers one question of an autotuner: the kernel, the values of its key by name, the dtypes of its arguments.
Each device and each version of the compiler has its own file, so an entry is never used on another one.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from suite.core.errors import ResultsError
from suite.core.files import write_atomically
from suite.core.paths import ROOT
from suite.hardware import device_slug
from suite.hardware.environment import package_version

FOLDER = ROOT / "triton_kernels" / "tuned"
SPACE = "tuning_space"
"""The function in a kernel's file that lists the candidates of a search: `tuning_space(arguments, **constants)` returns
configurations for these arguments of the kernel."""
HEAD = ("device", "triton", "driver")
"""The first fields of the file. The driver is that of the last search, also where older entries remain."""

Scalar = bool | int | float | str | None


@dataclass(frozen=True)
class Entry:
    """The fastest configuration that a search found for one question."""

    kernel: str
    """File and function: `matmul_persistent.matmul_kernel`."""
    key: Mapping[str, Scalar]
    dtypes: tuple[str, ...]
    config: Mapping[str, Scalar]
    """The kernel's parameters, `num_warps`, `num_stages`, and `maxnreg` if it is limited."""
    us: float
    short_list_us: float
    """Time of the configuration that the autotuner had chosen from its short list, in the same rounds."""
    candidates: int
    """Number of configurations that were tried."""

    @property
    def question(self) -> str:
        return question(self.kernel, self.key, self.dtypes)


def question(kernel: str, key: Mapping[str, Scalar], dtypes: Iterable[str]) -> str:
    """A question as one text; equal questions have equal texts."""
    return json.dumps([kernel, dict(key), list(dtypes)], sort_keys=True)


def version() -> str:
    """The version of Triton: another compiler may make another configuration the fastest."""
    return package_version("triton") or "none"


def path_for(device: str) -> Path:
    """The file for a device, given by its name, and the installed version of Triton."""
    return FOLDER / device_slug(device) / f"triton-{version()}.json"


def find(device: str) -> list[Entry]:
    """The entries for this device. Raises `ResultsError` as `read` does."""
    return read(path_for(device), device, version())


def add(entries: Iterable[Entry], device: str, driver: str) -> None:
    """Add entries to the file of this device; they replace earlier answers to the same questions."""
    answers = {each.question: each for each in (*find(device), *entries)}
    write(path_for(device), answers.values(), device=device, version=version(), driver=driver)


def read(path: Path, device: str, version: str) -> list[Entry]:
    """The entries of a file; none if there is no file. Raises `ResultsError` for a file that cannot be read, is
    damaged, or is of another device or version."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        _expect(isinstance(document, dict) and set(document) == {*HEAD, "entries"}, "other fields than expected")
        _expect(isinstance(document["entries"], list), "entries must be a list")
        entries = [entry(each) for each in document["entries"]]
        _expect(len({each.question for each in entries}) == len(entries), "a question is answered twice")
    except FileNotFoundError:
        return []
    except (OSError, ValueError, TypeError, RecursionError) as error:
        why = " ".join(f"{type(error).__name__}: {error}".split())
        raise ResultsError(f"{path}: not a readable file of tuned configurations ({why}): remove it") from error
    found = document["device"], document["triton"]
    if found != (device, version):
        raise ResultsError(
            f"{path}: tuned for {found[0]!r} with Triton {found[1]!r}; this is {device!r} with {version!r}: remove it"
        )
    return entries


def write(path: Path, entries: Iterable[Entry], *, device: str, version: str, driver: str) -> None:
    """Write the file: sorted, one entry a line. Raises `ResultsError` where it cannot be written."""
    facts = zip(HEAD, (device, version, driver), strict=True)
    head = "".join(f" {json.dumps(name)}: {json.dumps(value)},\n" for name, value in facts)
    body = ",\n".join(f"  {json.dumps(asdict(each))}" for each in sorted(entries, key=_rank))
    write_atomically(path, f'{{\n{head} "entries": [\n{body}\n ]\n}}\n')


def _rank(entry: Entry) -> tuple[Any, ...]:
    """Sort key: numbers by size, not by their digits."""
    return entry.kernel, entry.dtypes, [(type(value).__name__, value) for value in entry.key.values()]


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
