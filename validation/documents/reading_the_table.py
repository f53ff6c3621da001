"""docs/reading_the_table.md: the numbers in its sentences about the committed table in its picture."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from validation.documents import ROOT
from validation.documents.rows import ratio, row
from validation.documents.tables import with_sentences
from validation.documents.trust import table

PAGE = ROOT / "docs" / "reading_the_table.md"
CASE = "M=4096,N=4096,K=4096"


def sentences() -> Iterator[tuple[str, Sequence[str]]]:
    fast, naive = row("matmul", "cuda/wgmma", CASE), row("matmul", "cuda", CASE)
    yield r"It is ([\d.]+) times as fast as the vendor", [ratio(fast, 2)]
    yield r"takes (\d+) times as long", [f"{(naive.device_us or 0.0) / (fast.device_us or 1.0):.0f}"]
    apart = max(abs(float(each["difference"])) for each in table("repeatability"))
    yield r"Two runs of the same code differ by up to ([\d.]+)% on an H200", [f"{100.0 * apart:.1f}"]


def filled(text: str) -> str:
    """Return the page with the numbers of the results."""
    return with_sentences(text, sentences())
