"""docs/several_gpus.md: our fastest implementation of each problem over several GPUs, beside the baseline."""

from __future__ import annotations

from suite.results.csv_file import read_rows
from validation.documents import ROOT
from validation.documents.rows import H100
from validation.documents.tables import with_marked
from validation.several_gpus import table, verdicts

PAGE = ROOT / "docs" / "several_gpus.md"
RESULTS = (H100 / "ranks2", H100 / "ranks4")


def filled(text: str) -> str:
    """Return the page with its table."""
    rows = [row for folder in RESULTS for path in sorted(folder.rglob("*.csv")) for row in read_rows(path)]
    return with_marked(text, table(verdicts(rows)) + "\n")
