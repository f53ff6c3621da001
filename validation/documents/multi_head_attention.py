"""docs/lab/multi_head_attention.md: the implementations of a layer in the committed table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from validation.documents import ROOT
from validation.documents.rows import command, find, ratio, row, rows, span, us
from validation.documents.tables import Line, with_sentences, with_tables

PAGE = ROOT / "docs" / "lab" / "multi_head_attention.md"
TABLE = "multi_head_attention"


def lines(table: Sequence[Line]) -> None:
    for line in table:
        name, causal, _ = line["case B, S, E, heads"].partition(", causal")
        sizes, _, dtype = name.rpartition(" ")
        case = ",".join(map("=".join, zip("BSEH", sizes.split(", "), strict=True))) + ",causal" * bool(causal)
        line["torch us"] = us(row(TABLE, "torch", case, dtype))
        for head in list(line)[2:]:
            line[head] = ratio(find(TABLE, head, case, dtype))


def sentences() -> Iterator[tuple[str, Sequence[str]]]:
    yield r"by `(python -m suite compare [^`]*)`\.", [command(TABLE)]
    split = [each.error_ratio or 0.0 for each in rows(TABLE) if each.implementation == "cuda/split"]
    yield r"with an error of ([\d.]+) of the bound", [f"{max(split):.2f}"]
    half = [each.error_ratio or 0.0 for each in rows(TABLE) if each.dtype != "float32"]
    yield r"Errors of the cases in 16 bits are ([\d.]+) to ([\d.]+) of the bound", span(half, 2)


def filled(text: str) -> str:
    """Return the page with the numbers of the results."""
    return with_sentences(with_tables(text, {frozenset({"torch us"}): lines}), sentences())
