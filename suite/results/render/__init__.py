"""Renders rows for people: as lines of text on a terminal, as Markdown in a file."""

from suite.results.render.chart import chart_lines
from suite.results.render.columns import number
from suite.results.render.markdown import markdown, pipe_table, plain
from suite.results.render.matrix import matrix_lines
from suite.results.render.overview import findings, overview_lines
from suite.results.render.summary import crossovers, exit_status, gpus_remark, noise_remark, summary, weak_remark
from suite.results.render.text import case_lines
from suite.results.render.view import View

__all__ = [
    "View",
    "case_lines",
    "chart_lines",
    "crossovers",
    "exit_status",
    "findings",
    "gpus_remark",
    "markdown",
    "matrix_lines",
    "noise_remark",
    "number",
    "overview_lines",
    "pipe_table",
    "plain",
    "summary",
    "weak_remark",
]
