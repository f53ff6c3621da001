"""`python -m suite exercise`: the exercises of the course, and the verdict on a file that fills a gap."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from suite.exercises import catalogue
from suite.exercises.catalogue import Exercise


def exercise(
    name: Annotated[
        str, typer.Argument(metavar="[NAME]", help="The exercise: cuda/03_tail, or cuda/03. Default: list all.")
    ] = "",
    file: Annotated[
        Path | None, typer.Argument(metavar="[FILE]", help="Your solution. Default: the file in examples/exercises.")
    ] = None,
    device: Annotated[str, typer.Option(help="cpu, where each access is checked, or cuda.")] = "cpu",
) -> None:
    """Check your solution of a course exercise: pass; wrong, with a reason and a hint; or empty, if a gap is left.

    Exit status: 0 for pass and for the list, 1 for wrong and empty, 2 for invalid arguments.
    """
    if not name:
        return _list()
    chosen = catalogue.find(name)
    from suite.exercises.apart import verdicts
    from suite.exercises.judge import Outcome
    from suite.external.source import contents_of

    path = file or chosen.file
    contents_of(path)
    (found,) = verdicts([(chosen, path)], device)
    print(f"{found.outcome}: {chosen.name}" + (f": {found.reason}" if found.reason else ""))
    if found.outcome is Outcome.EMPTY and file is None:
        print(f"edit {_shown(chosen.file)}; explained in {_shown(chosen.page)}")
    if found.outcome is Outcome.WRONG:
        print(f"hint: {found.hint}")
    if found.outcome is Outcome.PASS:
        _after(chosen)
    raise typer.Exit(found.outcome is not Outcome.PASS)


def _after(passed: Exercise) -> None:
    """The next steps after a pass."""
    if passed.note:
        print(f"note: {passed.note}")
    names = [each.name for each in catalogue.on_path(passed.path)]
    rest = names[names.index(passed.name) + 1 :]
    print(
        f"compare with {_shown(passed.answer)}"
        + (f"; next: {rest[0]}" if rest else f"; this was the last exercise of {passed.path}")
    )


def _list() -> None:
    for path in catalogue.PATHS:
        chapter = ""
        for each in catalogue.on_path(path):
            if each.chapter != chapter:
                print(f"docs/learn/{each.chapter}.md")
            chapter = each.chapter
            print(f"  {each.name:<26} {each.idea}")
    print("edit a file in examples/exercises, then check it: python -m suite exercise NAME")


def _shown(path: Path) -> str:
    """The path from the current folder, if that is shorter."""
    return min(str(path), os.path.relpath(path), key=len)
