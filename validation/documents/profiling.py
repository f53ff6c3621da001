"""docs/profiling.md: the emulation's counts beside those of Nsight Compute."""

from __future__ import annotations

from validation.documents import ROOT
from validation.documents.rows import H100
from validation.documents.tables import with_sentences
from validation.documents.trust import said

PAGE = ROOT / "docs" / "profiling.md"


def filled(text: str) -> str:
    """Return the page with the numbers of the proof."""
    pattern = r"(\d+) kernels and lines; (\d+) of (\d+) counters within 5%"
    lines, close, counters = said(H100 / "proof" / "counters.md", pattern)
    sentence = r"gives the same within 5% for (\d+) of (\d+) counters of (\d+) kernels and implementations"
    return with_sentences(text, [(sentence, [close, counters, lines])])
