"""docs/lab/host_cost.md: the committed host times of warm calls."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

from validation.documents import ROOT
from validation.documents.rows import H200
from validation.documents.tables import Line, with_sentences, with_tables

PAGE = ROOT / "docs" / "lab" / "host_cost.md"
COLUMNS = {"as written": "as_written_us", "kept": "loop_us", "kept / torch": "vs_torch"}


@cache
def measured() -> tuple[dict[str, Any], ...]:
    return tuple(json.loads((H200 / "proof" / "host_cost.json").read_text(encoding="utf-8")))


def found(operation: str, name: str) -> dict[str, Any]:
    return next(each for each in measured() if (each["operation"], each["implementation"]) == (operation, name))


def lines(table: Sequence[Line]) -> None:
    for line in table:
        operation, _, names = line["operation, implementation"].partition(": ")
        rows = [found(operation, name) for name in names.split("; ")]
        for head, field in COLUMNS.items():
            digits = 2 if field == "vs_torch" else 1
            line[head] = "; ".join(f"{each[field]:.{digits}f}" for each in rows)
        line["torch"] = f"{found(operation, 'torch')['loop_us']:.1f}"


def parts(table: Sequence[Line]) -> None:
    kept = [each for each in measured() if each["parts"]]
    for line in table:
        part, _, rest = line["part of a kept call"].partition(": ")[0].partition(", ")
        part = next(name for name in ("look up", "allocate", "launch") if part.startswith(name))
        values = [each["parts"][part] for each in kept if each["implementation"].startswith(rest.lower())]
        line["median us"] = f"{statistics.median(values):.1f}"
        line["least to most"] = f"{min(values):.1f} to {max(values):.1f}"


def sentences() -> Iterator[tuple[str, Sequence[str]]]:
    above = {
        each["implementation"]: each["vs_torch"] for each in measured() if each["vs_torch"] > (each["limit"] or 99.0)
    }
    names = ("cuda", "cuda/tree", "cuda/atomics")
    if set(above) != set(names):
        raise SystemExit(f"other rows are above their limits: {above}; change docs/lab/host_cost.md")
    yield (
        r"`cuda` ([\d.]+), `cuda/tree` ([\d.]+), `cuda/atomics` ([\d.]+\d)",
        [f"{above[name]:.2f}" for name in names],
    )


def filled(text: str) -> str:
    """Return the page with the numbers of the results."""
    fills = {frozenset({"as written", "kept"}): lines, frozenset({"median us"}): parts}
    return with_sentences(with_tables(text, fills), sentences())
