"""The exercises: one table of `examples/exercises/exercises.toml` for each file with a gap."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from suite.core.errors import UsageError
from suite.core.names import unknown
from suite.core.paths import ROOT

FOLDER = ROOT / "examples" / "exercises"
PATHS = {"cuda": ".cu", "triton": ".py", "jax": ".py"}
"""The paths of the course, each with the suffix of its files."""


@dataclass(frozen=True)
class Exercise:
    """One exercise. `name` is `cuda/03_tail`."""

    name: str
    operation: str
    """The function that the file defines; its truth is `references/<operation>.py`."""
    chapter: str
    """The page of the course that explains it, below docs/learn and without its suffix."""
    idea: str
    """The idea that the exercise teaches, in a few words."""
    hint: str
    """Help for a file that computes something else."""
    shapes: tuple[str, ...] = ()
    """The sizes to check; empty for those of the reference."""
    dtype: str = ""
    """The type of the inputs; empty for all of the reference."""
    uses: tuple[str, ...] = ()
    """Words without which a file lacks the idea, whatever its results: a barrier, for example."""
    avoids: tuple[str, ...] = ()
    """Words that show another way than the exercise's idea: a loop in Python, for example."""
    at_most: tuple[tuple[str, int], ...] = ()
    """The largest counts of one emulated call of the first case, by name, such as `load_sectors`."""
    note: str = ""
    """Mistakes that the check cannot see, for the student to know."""

    @property
    def path(self) -> str:
        return self.name.partition("/")[0]

    @property
    def file(self) -> Path:
        """The file with the gap."""
        return FOLDER / f"{self.name}{PATHS[self.path]}"

    @property
    def answer(self) -> Path:
        return FOLDER / "answers" / f"{self.name}{PATHS[self.path]}"

    @property
    def reference(self) -> Path:
        return FOLDER / "references" / f"{self.operation}.py"

    @property
    def page(self) -> Path:
        """The chapter's file."""
        return ROOT / "docs" / "learn" / f"{self.chapter}.md"


@cache
def exercises() -> tuple[Exercise, ...]:
    """All exercises, path by path, in the order in which they are taken. Raises `UsageError` outside a checkout."""
    listed = FOLDER / "exercises.toml"
    if not listed.is_file():
        raise UsageError("the exercises are files of a checkout; this is an installed package: clone the repository")
    tables = tomllib.loads(listed.read_text(encoding="utf-8"))
    found = [
        Exercise(f"{path}/{name}", **{key: _frozen(value) for key, value in table.items()})
        for path in PATHS
        for name, table in tables.get(path, {}).items()
    ]
    return tuple(found)


def _frozen(value: Any) -> Any:
    return tuple(value.items()) if isinstance(value, dict) else tuple(value) if isinstance(value, list) else value


def find(name: str) -> Exercise:
    """The exercise called `name`: `cuda/03_tail`, its file, or a beginning that only one has, such as `cuda/03`.

    Raises `UsageError` for any other name.
    """
    given = name.removesuffix(".cu").removesuffix(".py").removeprefix("examples/exercises/")
    known = [each.name for each in exercises()]
    near = [given] if given in known else [each for each in known if given and each.startswith(given)]
    if len(near) != 1:
        raise UsageError(f"exercise: {unknown(name, near or known)}")
    return next(each for each in exercises() if each.name == near[0])


def on_path(path: str) -> Iterable[Exercise]:
    return (each for each in exercises() if each.path == path)
