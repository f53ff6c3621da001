"""docs/learn/cuda/5_products.md: an uncoalesced and a coalesced product in the committed table."""

from __future__ import annotations

from validation.documents import ROOT
from validation.documents.rows import ms, row
from validation.documents.tables import with_sentences

PAGE = ROOT / "docs" / "learn" / "cuda" / "5_products.md"
TABLE, CASE = "../nvidia-h100-80gb-hbm3/course/matmul", "M=4096,N=4096,K=4096"


def filled(text: str) -> str:
    """Return the page with the times of the results."""
    times = [ms(row(TABLE, name, CASE, "float32").device_us) for name in ("cuda/uncoalesced", "cuda")]
    sentence = r"takes ([\d.]+) ms with m from `threadIdx.x`, and ([\d.]+) ms with n"
    return with_sentences(text, [(sentence, [each.removesuffix(".") for each in times])])
