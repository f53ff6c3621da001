"""Finds the runs of one card in order of time, and judges the last of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from suite.core.errors import UsageError
from suite.diff.change import Change, Diff, Verdict, case_name
from suite.diff.interval import as_ratio
from suite.diff.judge import judge
from suite.diff.load import Side, load, row_key
from suite.results.run_folder import RUNS

NIGHTLY = "nightly"
"""The end of the names of nightly runs: `results/<device>/runs/<date>-nightly`."""


class Finding(StrEnum):
    """The judgement of a row after the last night."""

    BROKEN = "broken"
    REGRESSION = "regression"
    SUSPECT = "slower once"


@dataclass(frozen=True)
class Noted:
    """A row that is slower than before, or broken. `change` is from the night before the first slower one."""

    finding: Finding
    change: Change

    @property
    def text(self) -> str:
        """One line: the finding, the row, and its speed relative to before or what is wrong with it."""
        new, ratio = self.change.new, self.change.ratio
        what = f"{as_ratio(ratio.value):.3g} of its speed" if ratio is not None else f"{new.status}: {new.reason}"
        return f"{self.finding}: {case_name(new)} {new.implementation}, {what}"


@dataclass(frozen=True)
class Judgement:
    """The last night. `against_last` compares it with the night before; None if it is the first."""

    against_last: Diff | None
    noted: tuple[Noted, ...]

    @property
    def exit_status(self) -> int:
        """3 if a row is a regression or broken, else 0."""
        return 3 if any(each.finding is not Finding.SUSPECT for each in self.noted) else 0


def runs(folder: Path, device: str, on_damage: Callable[[str], None], ending: str = "") -> list[Side]:
    """The complete runs in `results/<device>/`, the earliest first, whose folders' names end in `ending`.

    Runs of other devices, unfinished ones and those that cannot be read are left out; `on_damage` gets the reason.
    """
    return list(_runs(folder, device, on_damage, ending))


def unfinished(folder: Path) -> Path | None:
    """The last night in `results/<device>/` if it was interrupted after its first row, else None."""
    last = list(_folders(folder, NIGHTLY))[-1:]
    try:
        return next((path for path in last if not _is_complete(load(path))), None)
    except UsageError:
        return None


def _folders(folder: Path, ending: str) -> Iterator[Path]:
    for path in sorted((folder / RUNS).glob("*/")):
        if not path.is_symlink() and _without_number(path.name).endswith(ending):
            yield path


def _is_complete(side: Side) -> bool:
    state = (side.environment or {}).get("run")
    return isinstance(state, dict) and bool(state.get("complete"))


def _runs(folder: Path, device: str, on_damage: Callable[[str], None], ending: str) -> Iterator[Side]:
    for path in _folders(folder, ending):
        try:
            side = load(path)
        except UsageError as error:
            on_damage(f"left out: {error}")
            continue
        if side.device == device and _is_complete(side):
            yield side


def _without_number(name: str) -> str:
    stem, _, number = name.rpartition(".")
    return stem if number.isdecimal() else name


def judged(nights: Sequence[Side], threshold: float) -> Judgement:
    """Judge the last of `nights`, the earliest of which come first.

    A regression is a row that is slower, beyond the interval, in two nights in a row than in the night before both. A
    row that is slower in the last night alone is a suspect. A row that worked in the night before and is wrong or fails
    now is broken. Raises `UsageError` if the last two cannot be compared.
    """
    if len(nights) < 2:
        return Judgement(None, ())
    last = judge(nights[-2], nights[-1], threshold)
    noted = [Noted(Finding.BROKEN, each) for each in last.changes if each.verdict is Verdict.BROKEN]
    slower = {row_key(each.new): each for each in last.changes if each.verdict is Verdict.SLOWER}
    if len(nights) > 2:
        first, second = (_slower(nights[-3], night, threshold) for night in nights[-2:])
        noted += [Noted(Finding.REGRESSION, change) for key, change in second.items() if key in first]
        slower = {key: change for key, change in {**second, **slower}.items() if key not in first}
    return Judgement(last, (*noted, *(Noted(Finding.SUSPECT, change) for change in slower.values())))


def _slower(base: Side, new: Side, threshold: float) -> dict[tuple[str, ...], Change]:
    try:
        found = judge(base, new, threshold)
    except UsageError:  # a night of other rows
        return {}
    return {row_key(each.new): each for each in found.changes if each.verdict is Verdict.SLOWER}
