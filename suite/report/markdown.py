"""Renders the report as Markdown for a code host: findings, winners, plots, provenance."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from suite.report.findings import findings
from suite.report.layer import Layer, layers
from suite.report.load import Run
from suite.report.plots import Plot
from suite.report.provenance import headline, provenance
from suite.report.ranking import LEVEL, CaseResult, Group, grouped, ranked_cases, tallies
from suite.report.style import look
from suite.report.wording import duration, interval, percent_of_limit, rate, ratio
from suite.results.render import pipe_table, plain

MADE_BY = "<!-- made by python -m suite report -->"
"""The first line of README.md. A file without it is not replaced."""


def markdown(runs: Sequence[Run], plots: Sequence[tuple[Plot, str]], out: Path) -> str:
    """The text of README.md in the folder `out`. `plots` are given with their files' names relative to it."""
    results = [result for run in runs for result in ranked_cases(run.on_its_device)]
    found = findings(runs)
    parts = [MADE_BY, "", f"# {plain(' and '.join(run.label for run in runs))}", ""]
    for run in runs:
        name = f"**{plain(run.label)}**: " if len(runs) > 1 else ""
        parts += [f"{name}{plain(headline(run))}", ""]
    parts += [*(f"- **{plain(each.figure)}.** {plain(each.sentence)}" for each in found), ""]
    parts += _winners(results, several=len(runs) > 1)
    for layer in layers(runs):
        parts += _layer(layer, several=len(runs) > 1)
    if plots:
        parts += ["## Plots", ""]
        for plot, file in plots:
            parts += [f"### {plain(plot.title)}", "", plain(plot.about), "", f"![{plain(plot.title)}]({file})", ""]
    for run in runs:
        parts += _tables(run, out)
    parts += ["## Provenance", ""]
    for title, facts in [provenance(run, part) for run in runs for part in run.parts]:
        body = [[plain(name), plain(value)] for name, value in facts]
        table = pipe_table(["", ""], body, right=set())
        parts += [f"<details><summary>{plain(title)}</summary>", "", table, "", "</details>", ""]
    return "\n".join(parts)


def _winners(results: Sequence[CaseResult], *, several: bool) -> list[str]:
    parts = ["## Winners", ""]
    if counted := tallies(results):
        names = list(dict.fromkeys(name for tally in counted for name in tally.faster))
        heads = ["operation", "cases", *(look(name).name for name in names), "level", "undecided", "vendor library"]
        body = []
        for tally in counted:
            counts = [tally.cases, *(tally.faster.get(name, 0) for name in names)]
            counts += [tally.level, tally.undecided, tally.slower]
            title = f"{tally.operation}, {tally.run}" if several else tally.operation
            body.append([plain(title), *map(str, counts)])
        parts += [
            "Cases in which an implementation beats the best vendor library, by its framework; "
            f"level is within {100 * LEVEL:g}%. A case is decided when the whole 95% interval says so.",
            "",
            pipe_table(heads, body, right=set(heads[1:])),
            "",
        ]
    for group in grouped(results):
        title = f"{group.operation} on {group.run}" if several else group.operation
        parts += [f"### {plain(title)}", "", _cases(group), ""]
    return parts


def _cases(group: Group) -> str:
    heads = ["case", "fastest", "time", "rate", "of limit", "against the best vendor library"]
    frameworks = [look(name).name for name in group.frameworks]
    body = []
    for result in group.results:
        fastest = result.fastest
        if fastest is None:
            continue
        against = ""
        if result.other is not None and result.outcome:
            against = f"{result.outcome}: {ratio(result.other.ratio)} ({interval(result.other.row)})"
        best = [result.best_of(name) for name in group.frameworks]
        body.append(
            [
                plain(f"{fastest.row.case.replace(',', ' ')} {result.first.arithmetic}"),
                plain(fastest.row.implementation) + (" (vendor)" if fastest.row.vendor else ""),
                duration(fastest.row.device_us),
                rate(fastest.row),
                percent_of_limit(fastest.row),
                against,
                *(ratio(entry.ratio) if entry else "" for entry in best),
            ]
        )
    return pipe_table([*heads, *frameworks], body, right={"time", "rate", "of limit", *frameworks})


def _layer(layer: Layer, *, several: bool) -> list[str]:
    """A section on a model's layer: the times of its parts, and the implementations to choose."""
    title = f"{layer.workload.title}, {layer.arithmetic}" + (f", {layer.run}" if several else "")
    frameworks = [look(name).name for name in layer.frameworks]
    heads = ["part", "case", "count", "fastest", "in a layer", *frameworks]
    body = [
        [
            plain(part.shape.name),
            plain(f"{part.shape.operation} {part.shape.case.replace(',', ' ')}"),
            str(part.shape.count),
            plain(part.pick.row.implementation) if part.pick else "",
            duration(part.us(part.pick)),
            *(duration(part.us(part.fastest_of(name))) for name in layer.frameworks),
        ]
        for part in layer.parts
    ]
    choices = [[plain(each.name), "the layer", duration(each.us)] for each in layer.whole_layer]
    for name in layer.operations:
        choices += [[plain(each.name), plain(name), duration(each.us)] for each in layer.choices(name)]
    return [
        f"## Time of a layer: {plain(title)}",
        "",
        "The device time of each shape's fastest row, times how often a layer has the shape. Every time is of a call "
        "alone, with a cold cache: the sum is for choosing implementations, and no prediction of a whole model.",
        "",
        *(f"- {plain(text)}" for text in layer.sentences),
        "",
        pipe_table(heads, body, right={"count", "in a layer", *frameworks}),
        "",
        pipe_table(["choice", "for", "in a layer"], choices, right={"in a layer"}),
        "",
    ]


def _tables(run: Run, out: Path) -> list[str]:
    """Links to the tables that `compare` rendered, if the report lies beside them."""
    if out.resolve() != run.path.resolve():
        return []
    files = [file for part in run.parts for file in sorted(part.path.glob("*.csv"))]
    names = [str(file.relative_to(run.path).with_suffix("")) for file in files]
    links = [f"[{plain(name)}]({name}.md)" for name in names if (run.path / f"{name}.md").exists()]
    return ["## All rows", "", f"{', '.join(links)}. The CSV files beside them have every column.", ""] if links else []
