"""docs/lab/attention_gluon.md: ratios of `triton/gluon` beside their aims, in the table of limits."""

from __future__ import annotations

from validation.documents import ROOT
from validation.documents.attention_limits import HEADS, filler
from validation.documents.tables import with_tables

PAGE = ROOT / "docs" / "lab" / "attention_gluon.md"


def filled(text: str) -> str:
    """Return the page with the ratios of the results."""
    return with_tables(text, {HEADS: filler("triton/gluon", lambda case: "S_q" not in case)})
