"""The targets of the operations of models, and which our fastest kernels reach (docs/lab/model_operations.md)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from suite.results.render import pipe_table
from suite.results.row import Row


@dataclass(frozen=True)
class Target:
    """The least share of the limit, and the least ratio to the fastest vendor; 0 is no target."""

    operation: str
    of_limit: float = 0.0
    vs_best: float = 0.0
    sizes: str = ""
    """Sizes as in a case's name, `M=16384,N=4096`; a case must have all of them."""
    dtype: str = ""
    """Empty for any dtype."""

    def covers(self, row: Row) -> bool:
        sizes = {*filter(None, self.sizes.split(","))}
        return row.operation == self.operation and self.dtype in ("", row.dtype) and sizes <= {*row.case.split(",")}


TARGETS = (
    Target("rope", 0.90, 1.0),
    Target("silu_mul", 0.90),
    Target("silu_mul_grad", 0.90),
    Target("add_rms_norm", 0.90),
    Target("rms_norm_grad", 0.79, 1.0, "M=16384,N=4096"),
    Target("rms_norm_grad", vs_best=1.0),
    Target("layer_norm_grad", 0.79, 1.0, "M=16384,N=4096"),
    Target("layer_norm_grad", vs_best=1.0),
    Target("cross_entropy", 0.88, 1.0),
    Target("quantize", 0.88),
    Target("silu_mul_quantize", 0.88),
    Target("rms_norm_quantize", 0.88),
    Target("cumsum", 0.88),
    Target("top_k", vs_best=1.5),
    Target("paged_attention", 0.88, sizes="page=16"),
    Target("paged_attention", 0.80, sizes="page=1"),
    *(Target("int4_matmul", 0.80, sizes=f"M={rows}") for rows in (1, 8, 32)),
    Target("attention", vs_best=1.02, dtype="float8_e4m3fn"),
    Target("attention", vs_best=1.1, sizes="window=1024"),
    Target("attention_grad", vs_best=1.1, sizes="window=1024"),
)
"""Targets. The first that covers a case counts. 0.79 is 3.8 of the 4.8 TB/s of an H200."""


@dataclass(frozen=True)
class Judged:
    """Our fastest row of a case beside its target."""

    row: Row
    target: Target

    @property
    def is_met(self) -> bool:
        share, ratio = self.row.of_limit or 0.0, self.row.vs_best or 0.0
        return round(share, 2) >= self.target.of_limit and round(ratio, 3) >= self.target.vs_best

    @property
    def cells(self) -> list[str]:
        """Operation and case, implementation, share, least share, ratio, least ratio."""
        row, target = self.row, self.target
        case = f"{row.operation} {row.case.replace(',', ' ')} {row.dtype}"
        share = [f"{row.of_limit or 0.0:.2f}", f"{target.of_limit:.2f}"] if target.of_limit else ["", ""]
        ratio = [f"{row.vs_best or 0.0:.3f}", f"{target.vs_best:g}"] if target.vs_best else ["", ""]
        return [case, row.implementation, *share, *ratio]


def judged(cases: Iterable[Sequence[Row]]) -> list[Judged]:
    """Our fastest row of each case that has a target. cases: the timed rows of each."""
    found = []
    for rows in cases:
        row = min((each for each in rows if each.is_ours), key=lambda each: each.device_us or 0.0)
        if target := next((each for each in TARGETS if each.covers(row)), None):
            found.append(Judged(row, target))
    return found


def part(cases: Iterable[Sequence[Row]]) -> str:
    """Format as Markdown how many targets each operation meets, and a row for each that is missed."""
    found = judged(cases)
    groups: dict[str, list[Judged]] = {}
    for each in found:
        groups.setdefault(each.row.operation, []).append(each)
    body = [[name, str(len(group)), str(sum(each.is_met for each in group))] for name, group in groups.items()]
    missed = [each.cells for each in found if not each.is_met]
    heads = ["missed", "line", "of limit", "target", "of best vendor", "target"]
    numbers = {"cases", "met", *heads[2:]}
    return (
        f"Targets met: {len(found) - len(missed)} of {len(found)}.\n\n"
        f"{pipe_table(['operation', 'cases', 'met'], body, numbers)}\n\n{pipe_table(heads, missed, numbers)}\n"
    )
