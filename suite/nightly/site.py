"""Writes a site of static pages: an index of the runs of each device, a page for each of the latest, and the history.

Links are relative and a page needs no other file, so that the site opens from a file or from any web server.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from suite.core.errors import UsageError
from suite.core.files import write_atomically
from suite.core.text import one_line
from suite.diff.load import Side
from suite.diff.render import summary
from suite.hardware.device import device_slug
from suite.history.load import Filter, load_history, timed_repeatedly
from suite.history.render import lines_of
from suite.nightly.nights import NIGHTLY, judged, runs
from suite.report.html import TEMPLATES, html
from suite.report.load import Run, load_runs
from suite.report.style import variables
from suite.results.row import FAILURES, Status
from suite.results.run_folder import RUNS

PAGES = 14
"""Runs of a device, the latest, that have a page."""
WIDTH = 160
"""Columns of the text of a history."""


@dataclass(frozen=True)
class Listed:
    """A run in the index. `page` is the link to its page, empty if it has none."""

    name: str
    page: str
    date: str
    commit: str
    ok: int
    failed: int


@dataclass(frozen=True)
class Card:
    """The runs of one device, the latest first. `against` and `noted` compare the last night with those before."""

    device: str
    listed: Sequence[Listed]
    against: str
    noted: Sequence[str]
    history: str


def write_site(folders: Sequence[Path], out: Path, threshold: float, on_damage: Callable[[str], None]) -> list[Path]:
    """Write the site of `folders`, each `results/<device>/` or a results folder. Returns its files, the index first.

    Runs that cannot be read are left out, and `on_damage` gets the reason. Raises `UsageError` if none is left.
    """
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    found = sorted(_runs(folders, on_damage), key=lambda run: (run.device, _date(run), run.path.name))
    if not found:
        raise UsageError(f"{', '.join(map(str, folders))}: no results here: give results/<device>, or a results folder")
    written: list[Path] = []
    cards = [
        _card(device, list(group), folders, out, threshold, on_damage, written)
        for device, group in groupby(found, key=lambda run: run.device)
    ]
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip
    page = environment.get_template("site.html")
    text = page.render(cards=cards, light=variables(dark=False), dark=variables(dark=True))
    write_atomically(out / "index.html", text)
    return [out / "index.html", *written]


def _runs(folders: Sequence[Path], on_damage: Callable[[str], None]) -> Iterator[Run]:
    for folder in folders:
        inside = [each for each in sorted((folder / RUNS).glob("*/")) if not each.is_symlink()]
        own = [folder] if any(folder.glob("*.csv")) or not inside else []
        for path in (*own, *inside):
            try:
                yield from load_runs([path])
            except UsageError as error:
                on_damage(f"left out: {error}")


def _date(run: Run) -> str:
    return str(run.environment.get("date_utc") or "")


def _card(
    device: str,
    group: Sequence[Run],
    folders: Sequence[Path],
    out: Path,
    threshold: float,
    on_damage: Callable[[str], None],
    written: list[Path],
) -> Card:
    """The entry of a device; writes the pages of its runs."""
    slug, listed, names = device_slug(device), [], Counter[str]()
    for place, run in enumerate(reversed(group)):
        name = run.path.resolve().name
        names[name] += 1
        page = f"{slug}/{name}" + (f".{names[name]}" if names[name] > 1 else "") + ".html" if place < PAGES else ""
        if page:
            write_atomically(out / page, html([run]))
            written.append(out / page)
        rows = [entry.row for entry in run.entries]
        git = run.environment.get("git")
        commit = str(git.get("commit") or "")[:12] if isinstance(git, dict) else ""
        ok, failed = (sum(row.status in kinds for row in rows) for kinds in ({Status.OK}, FAILURES))
        listed.append(Listed(name, page, _date(run)[:16].replace("T", " "), commit, ok, failed))
    against, noted, history = "", [], []
    for folder in folders:
        nights = runs(folder, device, on_damage, NIGHTLY)
        if nights:
            against, more, _ = against_before(nights, threshold)
            noted += more
            history.append(_history(folder, on_damage))
    return Card(device, listed, against, noted, "\n".join(history))


def against_before(nights: Sequence[Side], threshold: float) -> tuple[str, list[str], int]:
    """A sentence on the change since the night before, one for each row that is noted, and the exit status.

    The sentence says so if the two nights cannot be compared, as after other arguments.
    """
    try:
        found = judged(nights, threshold)
    except UsageError as error:
        return one_line(error), [], 0
    against = "the first night" if found.against_last is None else summary(found.against_last)
    return against, [one_line(each.text) for each in found.noted], found.exit_status


def _history(folder: Path, on_damage: Callable[[str], None]) -> str:
    try:
        cases = timed_repeatedly(load_history(folder, Filter(), on_damage))
    except UsageError:  # no run has a time
        return ""
    return "\n".join(line.plain for line in lines_of(cases, WIDTH))
