"""docs/lab/streaming.md: XLA's addition in the committed table."""

from __future__ import annotations

from validation.documents import ROOT
from validation.documents.rows import row, us
from validation.documents.tables import with_sentences

PAGE = ROOT / "docs" / "lab" / "streaming.md"


def filled(text: str) -> str:
    """Return the page with the number of the results."""
    added = us(row("vector_add", "jax", "N=268435456", "float32"))
    return with_sentences(text, [(r"XLA takes ([\d.]+) us for the addition", [added])])
