"""docs/lab/operation_targets.md: our best implementation beside its target in the cases of each operation.

Attention and its gradient have a table of their own (attention_targets.py), and so have products over shapes
(matmul_lines.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from suite.results.csv_file import read_rows
from suite.results.render import pipe_table
from suite.results.row import Row, Status
from validation.documents import ROOT
from validation.documents.earlier_names import renamed
from validation.documents.rows import H200 as RESULTS
from validation.documents.rows import of_case
from validation.documents.tables import with_marked, with_sentences

PAGE = ROOT / "docs" / "lab" / "operation_targets.md"

ROWWISE = ("sum", "layer_norm", "rms_norm")


@dataclass(frozen=True)
class Target:
    """The smallest `vs_best` that an implementation, or our best one, should reach in the cases of these sizes."""

    operation: str
    least: float
    sizes: str = ""
    """Sizes as in a case's name, `M=16,N=14336`; a case must have all of them."""
    line: str = ""

    def covers(self, row: Row) -> bool:
        return {*filter(None, self.sizes.split(","))} <= {*row.case.split(",")}


TARGETS = (
    Target("sum", 1.0),
    Target("softmax", 1.7, "N=131072"),
    Target("softmax", 1.7, "N=32768"),
    Target("softmax", 1.2, "M=32768,N=4096"),
    Target("softmax", 1.0),
    Target("layer_norm", 1.3, "N=131072"),
    Target("layer_norm", 1.0),
    Target("rms_norm", 1.3, "N=131072"),
    Target("rms_norm", 1.0),
    Target("linear_sigmoid", 1.05, "M=16"),
    Target("linear_sigmoid", 1.07, "M=4096,N=4096"),
    Target("linear_sigmoid", 1.07, "M=8192"),
    Target("linear_sigmoid_grad", 1.05),
    Target("conv2d", 1.2, "R=7"),
    Target("conv2d", 1.0),
    Target("conv2d", 0.85, line="triton/auto"),
    Target("lstm", 2.5, "B=1"),
    Target("lstm", 1.2),
    Target("multi_head_attention", 1.0),
)
"""Targets. The first that covers a case counts, separately for those with and without a line."""


def timed_cases(operation: str) -> Iterator[list[Row]]:
    """Yield the timed rows of each case of a committed table, in its order."""
    path = RESULTS / f"{operation}.csv"
    rows = [row for row in renamed(read_rows(path)) if row.status is Status.OK and row.vs_best] if path.exists() else []
    for _, case in groupby(rows, lambda row: (row.case, row.dtype, row.precision)):
        yield list(case)


def judged(rows: Sequence[Row]) -> Iterator[tuple[Row, Target]]:
    """Yield for each target of a case the row that it applies to, and the target."""
    first: dict[str, Target] = {}
    for target in TARGETS:
        if target.operation == rows[0].operation and target.covers(rows[0]):
            first.setdefault(target.line, target)
    for target in first.values():
        of = [row for row in rows if row.is_ours and target.line in ("", row.implementation)]
        if of:
            yield max(of, key=lambda row: row.vs_best or 0.0), target


@dataclass(frozen=True)
class Judged:
    """Our row of a case beside its target, and the fastest vendor implementation of that case."""

    row: Row
    least: float
    line: str
    """The line of the target; empty if our fastest one counts."""
    vendor: str

    @property
    def ratio(self) -> float:
        return self.row.vs_best or 0.0

    @property
    def is_met(self) -> bool:
        return round(self.ratio, 3) >= self.least

    @property
    def cells(self) -> list[str]:
        row = self.row
        case = f"{row.operation} {row.case} {row.dtype} {row.precision}"
        share = f"{row.of_limit:.2f}" if row.of_limit else ""
        return [case, self.vendor, row.implementation, f"{self.ratio:.3f}", f"{self.least:.2f}", share]


def all_judged() -> Iterator[Judged]:
    for operation in dict.fromkeys(target.operation for target in TARGETS):
        for rows in timed_cases(operation):
            vendor = next((row.implementation for row in rows if row.vendor and row.vs_best == 1.0), "")
            yield from (Judged(row, target.least, target.line, vendor) for row, target in judged(rows))


def table() -> str:
    """Format as Markdown how many targets each implementation meets, and a row for each target that is missed."""
    found = list(all_judged())
    groups: dict[str, list[Judged]] = {}
    for each in found:
        groups.setdefault(f"{each.row.operation} {each.line}".strip(), []).append(each)
    body = [
        [
            name,
            str(len(group)),
            str(sum(each.is_met for each in group)),
            span([each.ratio for each in group]),
            span([each.least for each in group], 2),
            span([each.row.of_limit for each in group if each.row.of_limit], 2),
        ]
        for name, group in groups.items()
    ]
    heads = ["operation", "targets", "met", "ratio", "target", "of limit"]
    missed = [each.cells for each in found if not each.is_met]
    return (
        f"- Targets met: {len(found) - len(missed)} of {len(found)}.\n\n{pipe_table(heads, body, set(heads[1:]))}\n\n"
        f"{pipe_table(['missed', 'vendor', 'line', *heads[3:]], missed, set(heads[3:]))}\n"
    )


def span(values: Sequence[float], digits: int = 3) -> str:
    """Format the least and the largest value, `0.98-1.27`; one number if they are equal."""
    return "-".join(dict.fromkeys(f"{each:.{digits}f}" for each in (min(values), max(values)))) if values else ""


def best(operation: str, case: str, dtype: str) -> str:
    """Format the ratio of our fastest implementation."""
    found = [row.vs_best or 0.0 for row in of_case(operation, case, dtype) if row.is_ours]
    return f"{max(found):.3f}"


def sentences() -> Iterator[tuple[str, Sequence[str]]]:
    """Yield the sentences on single cases under the table."""
    yield r"lstm 256 x 64 x 1024: ([\d.]+), just met", [best("lstm", "T=256,B=64,I=1024,H=1024", "bfloat16")]
    layer = best("multi_head_attention", "B=16,S=512,E=1024,H=16,causal", "bfloat16")
    yield r"multi_head_attention, S=512: ([\d.]+), just met", [layer]
    rows = [each for each in all_judged() if each.row.operation in ROWWISE and not each.is_met]
    apart = f"{100.0 * (1.0 - min(each.ratio for each in rows)):.0f}"
    shares = [each.row.of_limit or 0.0 for each in rows]
    yield (
        r"within (\d+)% of the vendor, at ([\d.]+) to ([\d.]+) of the bandwidth",
        [apart, f"{min(shares):.2f}", f"{max(shares):.2f}"],
    )


def filled(text: str) -> str:
    """Return the page with its table and sentences."""
    return with_sentences(with_marked(text, table()), sentences())
