"""Fills docs/ladder.md with numbers of the committed results.

    python validation/ladder_table.py            # prints stale numbers, exits with 1 if there are any
    python validation/ladder_table.py --write    # puts the numbers of the results into the page

Texts, links and the lines of a table are written by hand. tests/validation/test_ladder_numbers.py checks that the page
has the numbers of the results.
"""

from __future__ import annotations

import argparse
import difflib
import re
import sys
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from suite.results.csv_file import read_rows  # noqa: E402
from suite.results.row import Row, Status  # noqa: E402

PAGE = ROOT / "docs" / "ladder.md"
RESULTS = ROOT / "results" / "nvidia-h200"
SQUARE, SKINNY = "M=4096,N=4096,K=4096", "M=16,N=14336,K=4096"
ATTENTION = "B=4,H=16,H_kv=16,S_q=4096,S_k=4096,D=128"
ARITHMETIC = {"float32": ("float32", "ieee"), "bfloat16": ("bfloat16", "ieee"), "tf32": ("float32", "tf32")}
TABLE = re.compile(r"(?:^\|.*\n)+", re.MULTILINE)
Line = dict[str, str]
"""Cells of a line by their column head; a repeated head has a 2 appended."""
EARLIER_NAMES = {
    "matmul": {"triton/pipelined": "triton"},
    "attention": {"cuda/tiles": "cuda", "triton/specialized": "triton"},
    "attention,causal": {"cuda/tiles": "cuda", "triton/packed": "triton"},
    "attention_grad": {"cuda/tiles": "cuda", "triton/peeled": "triton"},
}
"""Lines by the names that they have in tables that are older than today's names: docs/results.md."""


@cache
def rows(operation: str) -> dict[tuple[str, str, str, str], Row]:
    """Return the timed rows of an operation; none if there are no results yet."""
    path = RESULTS / f"{operation}.csv"
    found = read_rows(path) if path.exists() else []
    return {(r.case, r.dtype, r.precision, r.implementation): r for r in found if r.status is Status.OK}


def row_of(table: str, implementation: str, *case: str, kind: str = "") -> Row | None:
    """Find the row of one of today's lines; in an older table by its earlier name."""
    found = rows(table)
    lines = {name for *_, name in found}
    earlier = {new: old for new, old in EARLIER_NAMES.get(kind or table, {}).items() if new not in lines}
    if implementation in earlier.values():  # there it is the name of another line
        return None
    case_, dtype, precision = case
    return found.get((case_, dtype, precision, earlier.get(implementation, implementation)))


def matmul(implementation: str, arithmetic: str, case: str = SQUARE) -> Row | None:
    table = "matmul" if case == SQUARE else "matmul_large/matmul"
    return row_of(table, implementation, case, *ARITHMETIC[arithmetic])


def attention(operation: str, implementation: str, causal: bool) -> Row | None:
    kind = operation + ",causal" * (causal and operation == "attention")
    return row_of(operation, implementation, ATTENTION + ",causal" * causal, "bfloat16", "ieee", kind=kind)


def fastest_vendor(arithmetic: str) -> Row | None:
    found = [row for key, row in rows("matmul").items() if key[:3] == (SQUARE, *ARITHMETIC[arithmetic]) and row.vendor]
    return min((row for row in found if row.device_us), key=lambda row: row.device_us or 0.0, default=None)


def us(row: Row | None) -> str:
    time = row.device_us if row else None
    return "" if time is None else f"{time:,.0f}" if time >= 1000.0 else f"{time:.1f}"


def rate(row: Row | None) -> str:
    value = row.tflops if row else None
    return "" if value is None else f"{value:.0f}" if value >= 100.0 else f"{value:.1f}"


def ratio(row: Row | None) -> str:
    return "" if row is None or row.vs_best is None else f"{row.vs_best:.3f}"


def gain(row: Row | None, above: Row | None) -> str:
    """Format the speed relative to the rung above."""
    if row is None or above is None or not row.device_us or not above.device_us:
        return ""
    value = above.device_us / row.device_us
    return f"{value:.1f}" if value >= 2.0 else f"{value:.2f}"


def unmeasured(cell: str) -> str:
    """Keep the mark of a number that is still to be measured."""
    return "?" if cell == "?" else ""


def name_of(line: Line) -> str:
    found = re.match(r"\[([\w/]+)\]", next(iter(line.values())))
    return found[1] if found else ""


def matmul_rungs(lines: Sequence[Line]) -> None:
    above: dict[str, Row | None] = {}
    name = ""
    for line in lines:
        name = name_of(line) or name  # the cell may be "the same file"
        arithmetic = line["arithmetic"]
        row = matmul(name, arithmetic)
        cells = {"us": us(row), "TFLOP/s": rate(row), "gain": gain(row, above.get(arithmetic)), "vs best": ratio(row)}
        line |= {head: text or unmeasured(line[head]) for head, text in cells.items()}
        above[arithmetic] = row


def matmul_special(lines: Sequence[Line]) -> None:
    for line in lines:
        case, arithmetic = (SKINNY, "bfloat16") if line["case"].startswith("16 x") else (SQUARE, "float32")
        row = matmul(name_of(line), arithmetic, case)
        line |= {"us": us(row), "TFLOP/s": rate(row), "vs best": ratio(row)}


def matmul_frameworks(lines: Sequence[Line]) -> None:
    for line in lines:
        line |= {arithmetic: ratio(matmul(name_of(line), arithmetic)) or "?" for arithmetic in ("bfloat16", "tf32")}


def attention_rungs(lines: Sequence[Line]) -> None:
    """Fill the forward or backward ladder."""
    for line in lines:
        operation = "attention_grad" if "attention_grad" in next(iter(line.values())) else "attention"
        full, causal = (attention(operation, name_of(line), causal) for causal in (False, True))
        cells = {"us": us(full), "causal, us": us(causal), "vs best": ratio(full), "causal": ratio(causal)}
        line |= {head: text or unmeasured(line[head]) for head, text in cells.items()}


FILLS = (
    ({"arithmetic", "gain"}, matmul_rungs),
    ({"case", "TFLOP/s"}, matmul_special),
    ({"bfloat16", "tf32"}, matmul_frameworks),
    ({"causal, us"}, attention_rungs),
)
"""Functions that fill a table, by its heads."""


def filled_table(block: str) -> str:
    head, rule, *body = block.splitlines()
    heads, *cells = ([cell.strip() for cell in line.strip("|").split("|")] for line in (head, *body))
    names = [each if each not in heads[:i] else f"{each} 2" for i, each in enumerate(heads)]
    fill = next((fill for needed, fill in FILLS if needed <= set(names)), None)
    if fill is None:
        return block
    lines = [dict(zip(names, line, strict=True)) for line in cells]
    fill(lines)
    return "\n".join([head, rule, *("| " + " | ".join(line.values()) + " |" for line in lines)]) + "\n"


def sentences() -> Iterator[tuple[str, list[str]]]:
    """Yield patterns of sentences, a group for each number, and the numbers."""
    vendors = [fastest_vendor(arithmetic) for arithmetic in ARITHMETIC]
    yield (
        r"vendor implementation takes\s([\d,.]+) us in float32\s\(([\d.]+) TFLOP/s\),\s([\d,.]+) us in bfloat16\s"
        r"\(([\d.]+)\)\sand\s([\d,.]+) us in tf32\s\(([\d.]+)\)",
        [text(row) for row in vendors for text in (us, rate)],
    )
    cudnn = [attention("attention", "torch/cudnn", causal) for causal in (False, True)]
    yield r"\(cuDNN through torch\)\stakes\s([\d,.]+)\sand\s([\d,.]+)\sus\sthere", [us(row) for row in cudnn]
    yield r"([\d.]+)\sof the vendor's float32 speed at 4096", [ratio(matmul("triton/split", "float32"))]


def filled(text: str) -> str:
    """Return the page with the numbers of the results. A sentence without results stays as it is."""
    text = TABLE.sub(lambda found: filled_table(found[0]), text)
    for pattern, numbers in sentences():
        found = re.search(pattern, text)
        if found is None:
            raise SystemExit(f"{PAGE}: no sentence like {pattern!r}; change it there or in {Path(__file__).name}")
        for position, number in reversed(list(enumerate(numbers, 1)) if all(numbers) else []):
            text = text[: found.start(position)] + number + text[found.end(position) :]
    return text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="put the numbers into docs/ladder.md")
    write = parser.parse_args().write
    before = PAGE.read_text(encoding="utf-8")
    after = filled(before)
    if write:
        PAGE.write_text(after, encoding="utf-8")
    elif before != after:
        sys.exit("\n".join(difflib.unified_diff(before.splitlines(), after.splitlines(), "page", "results", n=0)))


if __name__ == "__main__":
    main()
