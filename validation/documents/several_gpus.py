"""docs/several_gpus.md: our fastest line of each problem over two GPUs, beside the baseline."""

from __future__ import annotations

from suite.results.csv_file import read_rows
from validation.documents import ROOT
from validation.documents.rows import H100
from validation.documents.tables import with_marked
from validation.several_gpus import table, verdicts

PAGE = ROOT / "docs" / "several_gpus.md"
RESULTS = H100 / "ranks2"


def filled(text: str) -> str:
    """Return the page with its table."""
    rows = [row for path in sorted(RESULTS.rglob("*.csv")) for row in read_rows(path)]
    return with_marked(text, table(verdicts(rows)) + "\n")
