"""Renders the report as one screen of Markdown: findings, winners, and links to the page, the tables and the plots."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress
from pathlib import Path
from statistics import median

from suite.core.paths import ROOT
from suite.report.comparisons import Comparison, comparisons
from suite.report.findings import findings
from suite.report.layer import Layer, layers
from suite.report.load import Run
from suite.report.plots import Plot
from suite.report.plots.error_maps import PREFIX as WRONG_PREFIX
from suite.report.provenance import headline
from suite.report.ranking import LEVEL, CaseResult, ranked_cases, tallies
from suite.report.style import look
from suite.report.wording import ratio
from suite.results.render import pipe_table, plain
from suite.results.resume import ENVIRONMENT

MADE_BY = "<!-- made by python -m suite report -->"
"""The first line of README.md. A file without it is not replaced."""


def markdown(runs: Sequence[Run], plots: Sequence[tuple[Plot, str]], out: Path, page: str = "") -> str:
    """The text of README.md in the folder `out`. `plots` are given with their files' names relative to it.

    `page` is the name of the page's file, if it is written too.
    """
    results = [result for run in runs for result in ranked_cases(run.on_its_device)]
    several = len(runs) > 1
    parts = [MADE_BY, "", f"# {plain(' and '.join(run.label for run in runs))}", ""]
    for run in runs:
        name = f"**{plain(run.label)}**: " if several else ""
        parts += [f"{name}{plain(headline(run))}", ""]
    parts += [_page(runs, page), ""]
    parts += [*(f"- **{plain(each.figure)}.** {plain(each.sentence)}" for each in findings(runs)), ""]
    parts += _between_runs(comparisons(runs))
    parts += _winners(results, several=several)
    for layer in layers(runs):
        parts += _layer(layer, several=several)
    parts += _plots(plots, several=several)
    for run in runs:
        parts += _tables(run, out)
    return "\n".join(parts)


def _page(runs: Sequence[Run], page: str) -> str:
    """A sentence on the page with all winners, rows and plots: a link to its file, or the command that writes it."""
    about = "the winner of every case, all rows to sort and filter, and all plots"
    if page:
        return f"[{plain(page)}]({page}): {about}."
    paths = " ".join(_shown(run.path) for run in runs)
    return f"`python -m suite report {paths} --open` shows a page: {about}."


def _shown(path: Path) -> str:
    """A path inside the repository relative to it, so that the text does not depend on where the repository lies."""
    whole = path.resolve()
    return (whole.relative_to(ROOT) if whole.is_relative_to(ROOT) else path).as_posix().replace("`", "'")


def _winners(results: Sequence[CaseResult], *, several: bool) -> list[str]:
    """The number of cases of each operation by outcome."""
    counted = tallies(results)
    if not counted:
        return []
    names = list(dict.fromkeys(name for tally in counted for name in tally.faster))
    heads = ["operation", "cases", *(look(name).name for name in names), "level", "undecided", "vendor library"]
    heads += ["not compared"]
    body = []
    for tally in counted:
        counts = [tally.cases, *(tally.faster.get(name, 0) for name in names)]
        counts += [tally.level, tally.undecided, tally.slower, tally.not_compared]
        title = f"{tally.operation}, {tally.run}" if several else tally.operation
        body.append([plain(title), *(str(count or "") for count in counts)])
    used = [any(column) for column in zip(*body, strict=True)]
    heads, *body = [list(compress(line, used)) for line in (heads, *body)]
    return [
        "## Winners",
        "",
        "Cases in which an implementation beats the best vendor library, by its framework. "
        f"Level means within {100 * LEVEL:g}%. The whole 95% interval of a case must be faster, level or slower; "
        "else it is undecided.",
        "",
        pipe_table(heads, body, right=set(heads[1:])),
        "",
    ]


def _between_runs(found: Sequence[Comparison]) -> list[str]:
    """A line for each operation of two runs: speeds, distances to the limit, and cases whose winner changes."""
    parts = []
    for each in found:
        body = []
        for name in dict.fromkeys(pair.base.row.operation for pair in each.pairs):
            pairs = [pair for pair in each.pairs if pair.base.row.operation == name]
            ratios = [pair.ratio for pair in pairs]
            changes = sum(change.base.row.operation == name for change in each.changes)
            limits = [
                [entry.row.of_limit for entry in entries if entry.row.of_limit is not None]
                for entries in ([pair.base for pair in pairs], [pair.new for pair in pairs])
            ]
            shares = [f"{median(known):.2f}" if known else "" for known in limits]
            speeds = [f"{ratio(value)}" for value in (median(ratios), min(ratios), max(ratios))]
            body.append([plain(name), str(len(pairs)), *speeds, *shares, str(changes or "")])
        heads = ["operation", "rows", "times as fast", "lowest", "highest"]
        heads += [f"of limit, {plain(name)}" for name in (each.base, each.new)] + ["winner changes"]
        title = f"## {plain(each.new)} against {plain(each.base)}"
        text = "Medians of the rows that both have; `winner changes` counts cases."
        parts += [title, "", text, "", pipe_table(heads, body, right=set(heads[1:])), ""]
    return parts


def _layer(layer: Layer, *, several: bool) -> list[str]:
    """A section on a model's layer: its time, and the implementations to choose."""
    title = f"{layer.workload.title}, {layer.arithmetic}" + (f", {layer.run}" if several else "")
    return [
        f"## Time of a layer: {plain(title)}",
        "",
        "The device time of each shape's fastest row, times how often a layer has the shape. Every time is of a call "
        "alone, with a cold cache: the sum is for choosing implementations, and no prediction of a whole model.",
        "",
        *(f"- {plain(text)}" for text in layer.sentences),
        "",
    ]


def _plots(plots: Sequence[tuple[Plot, str]], *, several: bool) -> list[str]:
    """Links to the plots, a line for each kind: `rate against size: attention, matmul`."""
    kinds: dict[str, list[str]] = {}
    for plot, file in plots:
        first, _, kind = plot.title.partition(": ")
        wrong = plot.name.startswith(WRONG_PREFIX)
        name = Path(file).stem if several or wrong else first
        kinds.setdefault("where results are wrong" if wrong else kind or "all operations", []).append(
            f"[{plain(name)}]({file})"
        )
    lines = [f"- {plain(kind)}: {', '.join(links)}" for kind, links in kinds.items()]
    return ["## Plots", "", *lines, ""] if lines else []


def _tables(run: Run, out: Path) -> list[str]:
    """Links to the tables that `compare` rendered and to the environment records, if the report lies beside them."""
    if out.resolve() != run.path.resolve():
        return []
    files = [file for part in run.parts for file in sorted(part.path.glob("*.csv"))]
    names = [str(file.relative_to(run.path).with_suffix("")) for file in files]
    links = [f"[{plain(name)}]({name}.md)" for name in names if (run.path / f"{name}.md").exists()]
    records = [str((part.path / ENVIRONMENT).relative_to(run.path)) for part in run.parts if part.environment]
    found = [f"[{plain(name)}]({name})" for name in records]
    lines = [f"{', '.join(links)}. The CSV files beside them have every column.", ""] if links else []
    lines += [f"Command, versions, clocks and host: {', '.join(found)}.", ""] if found else []
    return ["## All rows", "", *lines] if lines else []
