"""Writes the files of a report."""

from __future__ import annotations

import re
import webbrowser
from collections.abc import Sequence
from pathlib import Path

from suite.core.errors import UsageError
from suite.core.files import MAX_RESULT_BYTES, check_writable, read_regular, refuse_foreign, write_atomically
from suite.core.names import unknown
from suite.diff.load import Side
from suite.report.framework_page import framework_page, is_ours, page_path
from suite.report.load import Run, load_runs, priced
from suite.report.markdown import MADE_BY, markdown
from suite.report.plots import Plot, is_plot, plots_of

FORMATS = ("html", "md", "png", "svg")
PAGE, README, PLOTS, REPORT = "report.html", "README.md", "plots", "report"
PAGE_TITLE = ": kernels compared</title>"
"""A text of every page, by which a page of an earlier report is known."""


def report(
    given: Sequence[Path | Side],
    formats: Sequence[str],
    out: Path | None,
    *,
    open_it: bool,
    prices: Sequence[float] = (),
) -> list[Path]:
    """Load runs, write the report, and show its page in a browser if `open_it`. Returns the files as `write` does.

    prices: of an hour of a device, one for all runs or one each; without prices the report has no costs.

    `out` is by default the folder of a single run, else `report`. Raises `UsageError` for invalid arguments.
    """
    for name in formats:
        if name not in FORMATS:
            raise UsageError(f"format: {unknown(name, FORMATS)}")
    if open_it and "html" not in formats:
        raise UsageError(f"open shows the page, which format {','.join(formats)} does not write; add html")
    folder = out or _folder_of(given)
    check_writable(folder)
    runs = load_runs(given)
    written = write(priced(runs, prices) if prices else runs, formats, folder)
    if open_it:
        webbrowser.open(written[0].resolve().as_uri())
    return written


def _folder_of(given: Sequence[Path | Side]) -> Path:
    first = given[0]
    if len(given) > 1 or isinstance(first, Side):
        return Path(REPORT)
    return first if first.is_dir() else first.parent


def write(runs: Sequence[Run], formats: Sequence[str], out: Path) -> list[Path]:
    """Write the report in each of `formats` to the folder `out`. Returns the files; the one to read first comes first.

    html: one page. md: README.md, and the plots as SVG. Other SVGs of an earlier report are removed. png, svg: the
    plots.

    Raises `UsageError` if a file is in the way that no report wrote, `ResultsError` if a file cannot be written.
    """
    readme = out / README
    named = named_plots(runs) if set(formats) - {"html"} else []
    _refuse_foreign(out, formats, [name for _, name in named])
    written = []
    if "html" in formats:
        from suite.report.html import html

        written.append(_write(out / PAGE, html(runs)))
    if "md" in formats:
        page = PAGE if "html" in formats else ""
        text = markdown(runs, [(plot, f"{PLOTS}/{name}.svg") for plot, name in named], out, page)
        written.append(_write(readme, text))
    for kind in _kinds(formats):
        written += [_write(out / PLOTS / f"{name}.{kind}", plot.file(kind)) for plot, name in named]
    if "md" in formats:
        for path in set((out / PLOTS).glob("*.svg")) - set(written):
            if path.is_file() and is_plot(read_regular(path, MAX_RESULT_BYTES)):
                path.unlink()
    return written


def write_framework_page(given: Sequence[Path], to: Path) -> Path:
    """Write the page of runs that compares frameworks to the file `to`, or to `frameworks.md` in that folder.

    Raises `UsageError` for a path without results, and for an existing file that is no such page.
    """
    path = page_path(to)
    check_writable(path.parent)
    runs = load_runs(given)
    refuse_foreign([path], is_ours, "a page of `report --frameworks`")
    return _write(path, framework_page(runs))


def _refuse_foreign(out: Path, formats: Sequence[str], plots: Sequence[str]) -> None:
    """Raise `UsageError`, before anything is written, for a file in the way that no report wrote."""
    ours = "a report of this suite"
    refuse_foreign([out / PAGE] if "html" in formats else [], lambda page: PAGE_TITLE.encode() in page, ours)
    refuse_foreign([out / README] if "md" in formats else [], lambda text: MADE_BY.encode() in text, ours)
    files = (out / PLOTS / f"{name}.{kind}" for kind in _kinds(formats) for name in plots)
    refuse_foreign(files, is_plot, "a plot of this suite")


def _kinds(formats: Sequence[str]) -> list[str]:
    """The formats of the plots that a report in `formats` writes."""
    return [kind for kind in ("svg", "png") if kind in formats or (kind == "svg" and "md" in formats)]


def named_plots(runs: Sequence[Run]) -> list[tuple[Plot, str]]:
    """The plots of all runs with the names of their files, without a suffix."""
    named = []
    for run in runs:
        prefix = f"{re.sub(r'[^a-z0-9]+', '-', run.label.lower()).strip('-')}-" if len(runs) > 1 else ""
        named += [(plot, prefix + plot.name) for plot in plots_of(run)]
    return named


def _write(path: Path, contents: str | bytes) -> Path:
    write_atomically(path, contents)
    return path
