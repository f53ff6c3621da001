"""Writes the files of a report."""

from __future__ import annotations

import re
import webbrowser
from collections.abc import Sequence
from pathlib import Path

from suite.core.errors import UsageError
from suite.core.files import write_atomically
from suite.diff.load import Side
from suite.report.load import Run, load_runs
from suite.report.markdown import MADE_BY, markdown
from suite.report.plots import Plot, is_plot, plots_of

FORMATS = ("html", "md", "png", "svg")
PAGE, README, PLOTS, REPORT = "report.html", "README.md", "plots", "report"


def report(given: Sequence[Path | Side], formats: Sequence[str], out: Path | None, *, open_it: bool) -> list[Path]:
    """Load runs, write the report, and show its page in a browser if `open_it`. Returns the files as `write` does.

    `out` is by default the folder of a single run, else `report`. Raises `UsageError` for unusable arguments.
    """
    unknown = [name for name in formats if name not in FORMATS]
    if unknown:
        raise UsageError(f"format: unknown {', '.join(map(repr, unknown))}; valid are {', '.join(FORMATS)}")
    if open_it and "html" not in formats:
        raise UsageError(f"open shows the page, which format {','.join(formats)} does not write; add html")
    runs = load_runs(given)
    written = write(runs, formats, out or _folder_of(given))
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

    Raises `UsageError` if `out` has a README.md that no report wrote, `ResultsError` if a file cannot be written.
    """
    readme = out / README
    if "md" in formats and readme.exists() and MADE_BY not in readme.read_text(encoding="utf-8", errors="replace"):
        raise UsageError(f"{readme} is not a report of this suite and is left alone; give another folder with --out")
    written = []
    if "html" in formats:
        from suite.report.html import html

        written.append(_write(out / PAGE, html(runs)))
    named = named_plots(runs) if set(formats) - {"html"} else []
    if "md" in formats:
        page = PAGE if "html" in formats else ""
        text = markdown(runs, [(plot, f"{PLOTS}/{name}.svg") for plot, name in named], out, page)
        written.append(_write(readme, text))
    for kind in ("svg", "png"):
        if kind in formats or (kind == "svg" and "md" in formats):
            written += [_write(out / PLOTS / f"{name}.{kind}", plot.file(kind)) for plot, name in named]
    if "md" in formats:
        for path in set((out / PLOTS).glob("*.svg")) - set(written):
            if is_plot(path.read_bytes()):
                path.unlink()
    return written


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
