"""docs/frameworks.md: JAX against torch for every operation with committed rows, each from the first of these runs."""

from __future__ import annotations

from suite.report.framework_page import framework_page
from suite.report.load import load_runs
from validation.documents import ROOT

PAGE = ROOT / "docs" / "frameworks.md"
RUNS = ("nvidia-h200", "nvidia-h100-80gb-hbm3/operations", "nvidia-h100-80gb-hbm3/ranks4")
"""Folders of results/."""


def filled(_: str) -> str:
    """Return the page; nothing on it is written by hand."""
    return framework_page(load_runs([ROOT / "results" / run for run in RUNS]))
