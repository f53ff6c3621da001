"""docs/lab/rows.md: public kernel libraries in the committed tables of softmax and the norms."""

from __future__ import annotations

from collections.abc import Sequence

from suite.results.render.labels import short_dtype
from validation.documents import ROOT
from validation.documents.rows import of_case, ratio, rows
from validation.documents.tables import Line, with_tables

PAGE = ROOT / "docs" / "lab" / "rows.md"


def lines(table: Sequence[Line]) -> None:
    for line in table:
        sizes, _, dtype = line["rows"].rpartition(" ")
        case = ",".join(map("=".join, zip("MN", sizes.split(" x "), strict=True)))
        for head in list(line)[1:]:
            operation, _, libraries = head.partition(": ")
            (kind,) = {(each.dtype, each.precision) for each in rows(operation) if short_dtype(each) == dtype}
            found = {each.implementation.partition("/")[2]: each for each in of_case(operation, case, *kind)}
            names = [name.removesuffix("-kernel") for name in libraries.split(", ")]
            line[head] = ", ".join(ratio(found.get(name)) or "-" for name in names)
        if all(set(line[head]) <= {"-", ",", " "} for head in list(line)[1:]):
            raise SystemExit(f"{PAGE}: no library has a row of {line['rows']}")


def filled(text: str) -> str:
    """Return the page with the numbers of the results."""
    return with_tables(text, {frozenset({"rows", "softmax: liger-kernel, helion"}): lines})
