"""docs/lab/linear_sigmoid.md: the implementations of linear_sigmoid and of its gradient in the committed tables."""

from __future__ import annotations

from collections.abc import Sequence

from suite.results.row import Row
from validation.documents import ROOT
from validation.documents.rows import find, us, us_and_ratio
from validation.documents.tables import Line, name_of, with_tables

PAGE = ROOT / "docs" / "lab" / "linear_sigmoid.md"


def lines(table: Sequence[Line]) -> None:
    operation = (
        "linear_sigmoid_grad" if any("torch/compile" in line["M x N x K"] for line in table) else "linear_sigmoid"
    )
    for line in table:
        name = line["M x N x K"]
        if "by events" in name:
            continue
        vendors = ("torch", "torch/compile") if "torch/compile" in name else ("torch",)
        for head in list(line)[1:]:
            case = ",".join(map("=".join, zip("MNK", head.split(" x "), strict=True)))
            found: list[Row | None] = [find(operation, each, case) for each in vendors]
            is_vendor = name.startswith("torch")
            line[head] = "; ".join(map(us, found)) if is_vendor else us_and_ratio(find(operation, name_of(line), case))


def filled(text: str) -> str:
    """Return the page with the numbers of the results."""
    return with_tables(text, {frozenset({"M x N x K"}): lines})
