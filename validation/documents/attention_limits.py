"""Ratios of attention from the committed table of sizes, for the tables of limits of two pages."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from validation.documents.rows import rows
from validation.documents.tables import Fill, Line

HEADS = frozenset({"case", "ratio (aim)"})
LONG = 2048
"""Cases without a length stand for all lengths from this one on."""


def ratios(implementation: str, case: str) -> list[float]:
    """Return the ratios of all rows that a case such as `D=64, S=2048 causal` describes."""
    wanted = dict(re.findall(r"\b(D|S)=(\d+)", case))
    found = []
    for row in rows("attention_sizes/attention"):
        sizes = dict(size.split("=") for size in row.case.split(",") if "=" in size)
        fits = wanted.get("D", sizes["D"]) == sizes["D"] and sizes["H"] == sizes["H_kv"]
        length = int(sizes["S_q"]) == int(wanted["S"]) if "S" in wanted else int(sizes["S_q"]) >= LONG
        square = sizes["S_q"] == sizes["S_k"] and int(sizes["B"]) * int(sizes["S_q"]) == 16384
        same_mask = ("causal" in case) == row.case.endswith("causal")
        if row.implementation == implementation and fits and length and square and same_mask and row.vs_best:
            found.append(row.vs_best)
    return found


def filler(implementation: str, is_measured: Callable[[str], bool]) -> Fill:
    """Return the function that fills the ratios of an implementation, in the lines whose case is measured."""

    def fill(lines: Sequence[Line]) -> None:
        for line in lines:
            if not is_measured(line["case"]):
                continue
            found = ratios(implementation, line["case"])
            aim = re.search(r"\([\d.]+\)", line["ratio (aim)"])
            span = dict.fromkeys((f"{min(found):.2f}", f"{max(found):.2f}"))
            line["ratio (aim)"] = " to ".join(span) + (f" {aim[0]}" if aim else "")

    return fill
