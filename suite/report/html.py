"""Renders the report as a single page that needs no other file and no network."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from suite.report.comparisons import comparisons
from suite.report.distribution import distributions
from suite.report.findings import findings
from suite.report.layer import layers
from suite.report.load import Run
from suite.report.plots import plots_of
from suite.report.provenance import headline, provenance
from suite.report.ranking import LEVEL, Tally, grouped, ranked_cases, tallies
from suite.report.style import look, variables
from suite.report.tables import pairs_table, rows_table
from suite.report.wording import duration, interval, percent_of_limit, rate, ratio

TEMPLATES = Path(__file__).with_name("templates")
FIRST, MAX_CASES = 3, 100
"""Number of findings on the first screen; largest number of cases of an operation in the table of winners."""


@dataclass(frozen=True)
class Share:
    """A part of the bar of an operation: the number of cases with one outcome. `kind` is its class in the page."""

    name: str
    count: int
    kind: str
    framework: str = ""


def html(runs: Sequence[Run]) -> str:
    """The page for `runs`."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(TEMPLATES), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip
    environment.filters |= {"look": look, "duration": duration, "ratio": ratio, "rate": rate, "interval": interval}
    environment.filters["breakable"] = breakable
    environment.filters["of_limit"] = percent_of_limit
    found = findings(runs)
    results = [result for run in runs for result in ranked_cases(run.on_its_device)]
    compared = comparisons(runs)
    rows = rows_table(runs) | {"samples": distributions(runs)}
    tables = {"rows": rows} | ({"pairs": pairs_table(compared)} if compared else {})
    return environment.get_template("page.html").render(
        title=" and ".join(run.label for run in runs),
        runs=runs,
        facts=[(run, headline(run), run.environment.get("command", "")) for run in runs],
        first=found[:FIRST],
        further=found[FIRST:],
        tallies=tallies(results),
        shares=shares,
        level=f"{100 * LEVEL:g}%",
        most=MAX_CASES,
        groups=grouped(results),
        layers=list(layers(runs)),
        plots=[(run, list(plots_of(run))) for run in runs],
        compared=compared,
        tables=_as_script(tables),
        provenance=[provenance(run, part) for run in runs for part in run.parts],
        light=variables(dark=False),
        dark=variables(dark=True),
    )


def _as_script(document: Any) -> str:
    """JSON for a script element, in which no text can end the element."""
    return json.dumps(document, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")


def breakable(text: str) -> str:
    """A case, or a text with cases, in HTML that allows a line break after each comma."""
    from markupsafe import Markup, escape

    return escape(text).replace(",", Markup(",<wbr>"))


def shares(tally: Tally) -> list[Share]:
    """The parts of an operation's bar. Their counts add up to its number of cases."""
    found = [Share(look(name).name, count, "win", name) for name, count in tally.faster.items()]
    found += [
        Share("level", tally.level, "level"),
        Share("undecided", tally.undecided, "undecided"),
        Share("vendor faster", tally.slower, "vendor"),
        Share("not compared", tally.not_compared, "none"),
    ]
    return [each for each in found if each.count]
