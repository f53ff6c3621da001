"""docs/streaming.md: the rungs of additions and of the sigmoid, and their distance to the vendors."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from validation.documents import ROOT
from validation.documents.rows import RUNGS, find, rows, span, us
from validation.documents.tables import Line, name_of, with_sentences, with_tables

PAGE = ROOT / "docs" / "streaming.md"
CASES = {"vector_add": "N=268435456", "matrix_add": "M=16384,N=16384", "sigmoid": "N=268435456"}
FRAMEWORKS = ("triton", "jax", "cuda")


def rungs(lines: Sequence[Line]) -> None:
    for line in lines:
        link = next(iter(line.values()))
        operation = link.partition("](../")[2].split("/")[1]
        case = CASES[operation] + ",layout=nt" * bool(re.search(r"\bnt$", link))
        for head in ("float32, us", "bfloat16, us"):
            line[head] = us(find(f"{RUNGS}/{operation}", name_of(line), case, head.partition(",")[0]))


def sentences() -> Iterator[tuple[str, Sequence[str]]]:
    """Yield the range of each framework's best implementation, over all cases of 2^28 elements on an H200."""
    best = {}
    for operation, case in CASES.items():
        for row in rows(operation):
            framework = row.implementation.partition("/")[0]
            if row.case.startswith(case) and framework in FRAMEWORKS and row.vs_best:
                key = (operation, row.case, row.dtype, framework)
                best[key] = max(best.get(key, row), row, key=lambda each: each.vs_best or 0.0)
    ratios = span([row.vs_best or 0.0 for row in best.values()])
    shares = span([100.0 * (row.of_limit or 0.0) for row in best.values()], 0)
    yield r"has ([\d.]+) to ([\d.]+) of the best vendor's speed, and (\d+) to (\d+)% of 4.8 TB/s", [*ratios, *shares]


def filled(text: str) -> str:
    """Return the page with the numbers of the results."""
    return with_sentences(with_tables(text, {frozenset({"float32, us", "bfloat16, us"}): rungs}), sentences())
