"""docs/lab/attention_grad.md: the implementations of the gradient at S = 4096 in the committed table."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from validation.documents import ROOT
from validation.documents.rows import ratio, row, us
from validation.documents.tables import with_sentences

PAGE = ROOT / "docs" / "lab" / "attention_grad.md"
CASE = "B=4,H=16,H_kv=16,S_q=4096,S_k=4096,D=128"
LINES = ("cuda/wgmma", "jax/cudnn", "triton/gluon", "jax/pallas", "triton", "torch/flash", "jax")


def sentences() -> Iterator[tuple[str, Sequence[str]]]:
    listed = ", ".join(rf"`{re.escape(name)}` (\d[\d.]*\d)" for name in LINES)
    ratios = [ratio(row("attention_grad", name, CASE)) for name in LINES]
    yield rf"of torch \(([\d,.]+) us\): {listed}", [us(row("attention_grad", "torch", CASE)), *ratios]


def filled(text: str) -> str:
    """Return the page with the numbers of the results."""
    return with_sentences(text, sentences())
