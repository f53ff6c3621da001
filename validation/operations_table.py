"""Fills docs/lab/model_operations.md with the committed rows of an H100.

    python -m validation.operations_table            # prints stale lines, exits with 1 if there are any
    python -m validation.operations_table --write    # puts the table of the results into the page

The rows are those of results/nvidia-h100-80gb-hbm3/operations, a folder for each operation.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from suite.results.csv_file import read_rows
from suite.results.row import Row, Status

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "lab" / "model_operations.md"
RESULTS = ROOT / "results" / "nvidia-h100-80gb-hbm3" / "operations"
OPERATIONS = ("rope", "silu_mul", "silu_mul_grad", "add_rms_norm", "max_pool2d", "max_pool2d_grad", "adam_step")
TABLE = re.compile(r"(?:^\|.*\n)+", re.MULTILINE)


def table() -> str:
    """The best vendor row of each case, and the fastest line of ours in Triton and CUDA beside it, as Markdown."""
    lines = ["| case | best vendor | us | of limit | Triton | CUDA |", "|---|---|---:|---:|---:|---:|"]
    for operation in OPERATIONS:
        for rows in by_case(read_rows(RESULTS / operation / f"{operation}.csv")):
            vendor = fastest([row for row in rows if row.vendor])
            case = re.sub(r",padding=\d+", "", rows[0].case).replace(",", " ")
            cells = [ratio([row for row in rows if row.implementation.split("/")[0] == f]) for f in ("triton", "cuda")]
            which = f"{operation} {case} {rows[0].dtype}"
            numbers = f"{vendor.device_us:,.1f} | {vendor.of_limit:.2f}"
            lines.append(f"| {which} | {vendor.implementation} | {numbers} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


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
    """The best vendor's time over that of the fastest of these rows, and its variant: `1.010 (registers)`."""
    best = fastest(rows)
    variant = best.implementation.partition("/")[2]
    return f"{best.vs_best:.3f}" + (f" ({variant})" if variant else "")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write the page")
    text = PAGE.read_text(encoding="utf-8")
    new = TABLE.sub(lambda _: table(), text, count=1)
    if parser.parse_args().write:
        PAGE.write_text(new, encoding="utf-8")
    stale = [line for line in text.splitlines() if line not in new.splitlines()]
    print("\n".join(stale))
    return int(bool(stale))


if __name__ == "__main__":
    raise SystemExit(main())
