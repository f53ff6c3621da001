"""docs/lab/model_operations.md: the best vendor and our implementations of the operations of models on two GPUs.

The rows are those of results/<device>/operations, a folder for each operation, and of options beside it, a folder for
each option of an operation. Those of an H200 are fewer.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from suite.results.csv_file import read_rows
from suite.results.row import Row, Status
from validation.documents import ROOT, model_targets
from validation.documents.rows import H100
from validation.documents.tables import TABLE, with_marked, with_sentences

PAGE = ROOT / "docs" / "lab" / "model_operations.md"
H200 = ROOT / "results" / "nvidia-h200"
LEVEL = ("rope", "silu_mul", "silu_mul_grad", "add_rms_norm", "max_pool2d", "max_pool2d_grad", "adam_step")
"""Operations that the compilers fuse as well."""
AHEAD = (
    *("rms_norm_grad", "layer_norm_grad", "cross_entropy", "quantize", "silu_mul_quantize", "rms_norm_quantize"),
    *("cumsum", "top_k", "paged_attention"),
)
PRODUCTS = (
    *("block_scaled_matmul", "int4_matmul", "grouped_matmul", "grouped_matmul_grad", "grouped_block_scaled_matmul"),
    "linear_cross_entropy",
)


def table(cases: Iterable[Sequence[Row]]) -> str:
    """The best vendor row of each case beside our fastest implementations in Triton and CUDA, as Markdown."""
    lines = [
        "| case | best vendor | us | of limit | Triton | CUDA | our of limit |",
        "|---|---|---:|---:|---:|---:|---:|",
    ]
    for rows in cases:
        vendor = fastest([row for row in rows if row.vendor])
        case = re.sub(r",padding=\d+", "", rows[0].case).replace(",", " ")
        cells = [ratio([row for row in rows if row.implementation.split("/")[0] == f]) for f in ("triton", "cuda")]
        which = f"{rows[0].operation} {case} {rows[0].dtype}"
        numbers = f"{vendor.device_us:,.1f} | {vendor.of_limit:.2f}"
        ours = f"{fastest([row for row in rows if row.is_ours]).of_limit:.2f}"
        lines.append(f"| {which} | {vendor.implementation} | {numbers} | {' | '.join([*cells, ours])} |")
    return "\n".join(lines) + "\n"


def timed_cases(device: Path) -> Iterator[list[Row]]:
    """Yield the timed rows of each case that a vendor computes, in the results of a device."""
    names = (*LEVEL, *AHEAD, *PRODUCTS)
    found = sorted((device / "operations").glob("*/*.csv"), key=lambda path: names.index(path.stem))
    for path in [*found, *sorted((device / "options").glob("*/*.csv"))]:
        yield from (rows for rows in by_case(read_rows(path)) if any(row.vendor for row in rows))


def by_case(rows: Sequence[Row]) -> Iterator[list[Row]]:
    """The rows that agree, case by case."""
    found: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        if row.status is Status.OK and row.device_us:
            found.setdefault((row.case, row.dtype), []).append(row)
    yield from found.values()


def fastest(rows: Sequence[Row]) -> Row:
    return min(rows, key=lambda row: row.device_us or 0.0)


def ratio(rows: Sequence[Row]) -> str:
    """The best vendor's time over that of the fastest of these rows, and its variant: `1.010 (registers)`.

    Empty without rows: plain implementations that take long are not timed at these sizes.
    """
    if not rows:
        return ""
    best = fastest(rows)
    variant = best.implementation.partition("/")[2]
    return f"{best.vs_best:.3f}" + (f" ({variant})" if variant else "")


def least_share() -> str:
    """Format the least share of the bandwidth that our fastest kernels reach in the cases that the page calls level."""
    shares = []
    for operation in LEVEL:
        for rows in by_case(read_rows(H100 / "operations" / operation / f"{operation}.csv")):
            if operation != "max_pool2d_grad" and "N=65536" not in rows[0].case and "R=3" not in rows[0].case:
                shares.append(fastest([row for row in rows if row.is_ours]).of_limit or 0.0)
    return f"{min(shares):.2f}"


def parts() -> str:
    """Format the targets on an H100, then the table and the targets on an H200."""
    on_h200 = [*timed_cases(H200)]
    return (
        f"{model_targets.part(timed_cases(H100))}\n### On an H200\n\n"
        "The columns are those of the first table. These runs are newer, on other hosts, and some operations are\n"
        "missing.\n\n"
        f"{table(on_h200)}\n{model_targets.part(on_h200)}"
    )


def filled(text: str) -> str:
    """Return the page with its tables, the share in the sentence under the first, and the targets."""
    text = TABLE.sub(lambda _: table(timed_cases(H100)), text, count=1)
    text = with_marked(text, parts())
    return with_sentences(text, [(r"and Adam reach ([\d.]+) of the bandwidth or more", [least_share()])])
