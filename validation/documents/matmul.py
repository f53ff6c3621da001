"""docs/lab/matmul.md: square products, rectangles, layouts and float8 in the committed tables."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import chain

from suite.results.row import Row
from validation.documents import ROOT
from validation.documents.rows import find, ratio, row, rows, span
from validation.documents.tables import Line, with_sentences, with_tables

PAGE = ROOT / "docs" / "lab" / "matmul.md"
LARGE, LAYOUTS, FLOAT8 = "matmul_large/matmul", "matmul_layouts/matmul", "matmul_float8/matmul"
TYPES = {
    "tf32": ("matmul", "", "float32", "tf32"),
    "float8 promoted, nt": (FLOAT8, ",layout=nt", "float8_e4m3fn", "promoted"),
    "float8 fast, nt": (FLOAT8, ",layout=nt", "float8_e4m3fn", "fast"),
    "float32": ("matmul", "", "float32", "ieee"),
}
ROWS_16 = "M=16,N=14336,K=4096"


def square(size: str) -> str:
    return f"M={size},N={size},K={size}"


def targets(lines: Sequence[Line]) -> None:
    for line in lines:
        for size in list(line)[1:]:
            target = re.findall(r"\([\d.]+\)", line[size])[0]
            name, case = line["line, ratio (target)"], square(size)
            line[size] = f"{ratio(find('matmul', name, case) or row(LARGE, name, case))} {target}"


def types(lines: Sequence[Line]) -> None:
    for line in lines:
        table, layout, dtype, precision = TYPES[line["type"]]
        for size in list(line)[2:]:
            found = [row(table, name, square(size) + layout, dtype, precision) for name in line["lines"].split("; ")]
            line[size] = "; ".join(map(ratio, found))


def sentences() -> Iterator[tuple[str, Sequence[str]]]:
    def is_at_4096(each: Row) -> bool:
        sizes = {each.case.split(",")[i].partition("=")[2] for i in range(3)}
        return "4096" in sizes and sizes <= {"4096", "14336"}

    at_4096 = [each for each in chain(rows(LARGE), rows(LAYOUTS)) if is_at_4096(each)]
    plain = [each.vs_best or 0.0 for each in at_4096 if each.implementation == "triton"]
    pallas = [each.vs_best or 0.0 for each in at_4096 if each.implementation == "jax/pallas" and "layout" in each.case]
    yield (
        r"except `triton` \(([\d.]+) to ([\d.]+)\) and the layouts of `jax/pallas` \(([\d.]+) to ([\d.]+)\)",
        [*span(plain), *span(pallas)],
    )
    named = ("torch", "triton", "jax/pallas", "jax")
    others = [each for each in at_4096 if each.implementation not in named]
    apart = max(abs((each.vs_best or 0.0) - 1.0) for each in others)
    yield r"Rectangles and layouts at 4096 lie within (\d+)% of the vendor", [f"{apart * 100.0:.0f}"]
    few = [f"{(row(LARGE, name, ROWS_16).gb_per_s or 0.0) / 1e3:.2f}" for name in ("torch", "triton", "cuda/skinny")]
    yield r"torch reads ([\d.]+) TB/s, `triton` ([\d.]+), `cuda/skinny` ([\d.]+\d)", few
    most = [f"{row(LARGE, name, square('16384')).tflops:.0f}" for name in ("torch", "cuda/wgmma")]
    yield r"cuBLAS and `cuda/wgmma` reach (\d+) and (\d+) \(matmul_large\)", most


def filled(text: str) -> str:
    """Return the page with the numbers of the results."""
    fills = {frozenset({"line, ratio (target)"}): targets, frozenset({"type", "lines"}): types}
    return with_sentences(with_tables(text, fills), sentences())
