"""docs/lab/attention_targets.md: attention's ratios to the best vendor implementation beside their targets.

    python -m validation.documents.attention_targets   # writes examples/attention*_shapes.csv again

The page has the commands that make the tables. Five shapes of each list were drawn at random with SEED, and are not
used for tuning.
"""

from __future__ import annotations

import csv
import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from suite.results.csv_file import read_rows
from suite.results.render import pipe_table
from suite.results.row import Row, Status
from validation.documents import ROOT
from validation.documents.earlier_names import renamed
from validation.documents.rows import H200 as RESULTS
from validation.documents.rows import command, wrapped
from validation.documents.tables import with_marked, with_sentences

PAGE = ROOT / "docs" / "lab" / "attention_targets.md"
DIMS = ("B", "H", "H_kv", "S_q", "S_k", "D")
SEED, DRAWN = 20261123, 5
TRITON = "triton/packed, specialized, parts"
OURS = {
    "attention": {
        TRITON: ("triton/packed", "triton/specialized", "triton/parts"),
        "triton/gluon": ("triton/gluon",),
        "cuda/auto": ("cuda/auto",),
        "jax/pallas": ("jax/pallas",),
    },
    "attention_grad": {each: (each,) for each in ("triton/peeled", "triton/gluon", "cuda/wgmma", "jax/pallas")},
}
"""The columns of our implementations, each with its lines. A column shows the fastest of them."""
FIRST = {TRITON: 0.85, "triton/gluon": 1.08, "cuda/auto": 1.08, "jax/pallas": 0.95}
CAUSAL = {TRITON: 0.85, "triton/gluon": 1.05, "cuda/auto": 1.05, "jax/pallas": 0.92}
NARROW = {TRITON: 0.95, "triton/gluon": 1.05, "cuda/auto": 1.08, "jax/pallas": 0.95}
WIDE = {TRITON: 0.75, "triton/gluon": 1.06, "cuda/auto": 1.05, "jax/pallas": 0.90}
"""Targets of the forward pass for S of 2048 and more: D = 128, the same causal, D = 64, D = 256."""

Shape = tuple[int, ...]
Ratios = dict[str, Row]
"""Timed rows of a case, by column of the table."""


def shapes(operation: str) -> list[Shape]:
    """Return the shapes of an operation, with 16384 tokens and 2048 features, and the drawn ones at the end.

    They include grouped heads; for the forward pass also a ragged size, more keys than queries, and decoding.
    """
    forward = operation == "attention"
    sizes = [2**e for e in range(9 if forward else 10, 15)]
    found = [
        (2**14 // s, 2048 // d, 2048 // d, s, s, d) for d in ((64, 128, 256) if forward else (64, 128)) for s in sizes
    ]
    found += [(4, 32, 8, 4096, 4096, 128), (4, 64, 8, 4096, 4096, 128)]
    if forward:
        found += [(1, 16, 16, 3000, 3000, 128), (4, 16, 16, 1000, 5000, 128), (4, 16, 16, 5000, 1000, 128)]
        found += [(64, 32, 8, 1, 8192, 128), (1, 32, 8, 1, 131072, 128)]
    return found + drawn(forward)


def drawn(forward: bool) -> list[Shape]:
    """Draw five shapes: S from 512 to 16384, at most 32768 tokens, 1 to 8 key heads of 1, 2, 4 or 8 queries."""
    source = random.Random(SEED)
    found: list[Shape] = []
    for _ in range(DRAWN):
        s = round(math.exp(source.uniform(math.log(512), math.log(16384))))
        b, h_kv, group = source.randint(1, 32768 // s), source.randint(1, 8), source.choice((1, 2, 4, 8))
        found.append((b, h_kv * group, h_kv, s, s, source.choice((64, 128, 256) if forward else (64, 128))))
    return found


def name(shape: Shape, causal: bool) -> str:
    return ",".join(f"{dim}={size}" for dim, size in zip(DIMS, shape, strict=True)) + (",causal" if causal else "")


def label(shape: Shape, causal: bool) -> str:
    b, h, h_kv, s_q, s_k, d = shape
    heads = f"H={h}" if h == h_kv else f"H={h}/{h_kv}"
    keys = f"S={s_q}" if s_q == s_k else f"S_q={s_q} S_k={s_k}"
    return f"D={d} {keys} B={b} {heads}" + (" causal" if causal else "")


def measured(operation: str) -> dict[str, Ratios]:
    """Return the bfloat16 rows by case and column, a row of our fastest implementation for each column of ours."""
    found: dict[str, Ratios] = {}
    path = RESULTS / f"{operation}_sizes" / f"{operation}.csv"
    column = {line: name for name, lines in OURS[operation].items() for line in lines}
    for row in renamed(read_rows(path)) if path.exists() else ():
        if row.dtype == "bfloat16" and row.status is Status.OK and row.vs_best is not None:
            case, name = found.setdefault(row.case, {}), column.get(row.implementation, row.implementation)
            if name not in case or row.vs_best > (case[name].vs_best or 0.0):
                case[name] = row
    return found


def best(operation: str, rows: Ratios) -> float:
    return max((rows[each].vs_best or 0.0 for each in OURS[operation] if each in rows), default=0.0)


def forward_targets(shape: Shape, causal: bool) -> dict[str, float]:
    """Return the target of each column that has one, and of the best implementation of ours ("best")."""
    _, h, h_kv, s_q, s_k, d = shape
    if shape in drawn(True) or s_q != s_k or h != h_kv:
        return {}
    if s_q == 3000:
        return {"best": 1.2} if causal else {}
    if s_q < 2048:
        return {"best": {512: 1.0, 1024: 1.05}[s_q]}
    if d == 128:
        return CAUSAL if causal else FIRST
    return NARROW if d == 64 else WIDE


def backward_targets(shape: Shape, causal: bool) -> dict[str, float]:
    *_, s, d = shape
    del causal
    return {"best": 1.05 if s <= 2048 else 1.0} if d == 128 and shape not in drawn(False) else {}


@dataclass(frozen=True)
class Measured:
    """The ratios of a case by column, with the best of ours as "best", and the targets of some columns."""

    shape: Shape
    causal: bool
    ratios: dict[str, float]
    targets: dict[str, float]

    @property
    def missed(self) -> dict[str, float]:
        """The targets that are missed, by column. Three digits count."""
        return {each: least for each, least in self.targets.items() if round(self.ratios.get(each, 0.0), 3) < least}

    @property
    def group(self) -> str:
        _, h, h_kv, s_q, s_k, d = self.shape
        mask = " causal" if self.causal else ""
        if self.shape in (*drawn(True), *drawn(False)):
            return "drawn" + mask
        if s_q == 1:
            return "one query"
        if h != h_kv:
            return "grouped heads" + mask
        return ("other lengths" if s_q != s_k or s_q % 512 else f"D={d}") + mask


def cases(operation: str, targets: Callable[[Shape, bool], dict[str, float]]) -> Iterator[Measured]:
    """Yield the measured cases."""
    found, ours = measured(operation), OURS[operation]
    for shape in shapes(operation):
        for causal in (False, True):
            rows = found.get(name(shape, causal), {})
            if not rows or (causal and shape[3] == 1):  # a single query sees every key
                continue
            ratios = {each: rows[each].vs_best or 0.0 for each in ours if each in rows}
            if own := best(operation, rows):
                ratios["best"] = own
            yield Measured(shape, causal, ratios, targets(shape, causal))


def grouped(operation: str, found: Sequence[Measured]) -> Iterator[list[str]]:
    """Yield the cells of each group of cases: its number, and the least and the largest ratio of each column."""
    for group in dict.fromkeys(each.group for each in found):
        own = [each for each in found if each.group == group]
        columns = ([each.ratios[c] for each in own if c in each.ratios] for c in (*OURS[operation], "best"))
        spans = (f"{min(values):.3f}-{max(values):.3f}" if values else "" for values in columns)
        yield [f"{group}: {len(own)}", *spans]


def missed_by_group(found: Sequence[Measured]) -> Iterator[list[str]]:
    """Yield the cells of each column and group that misses a target: its lengths, and the range of ratios."""
    misses: dict[tuple[str, str, float], list[Measured]] = {}
    for each in found:
        for column, least in each.missed.items():
            misses.setdefault((column, each.group, least), []).append(each)
    for (column, group, least), cases_ in misses.items():
        lengths = ", ".join(str(each.shape[3]) for each in cases_)
        ratios = [each.ratios.get(column, 0.0) for each in cases_]
        yield [column, f"{group}, S={lengths}", f"{min(ratios):.3f}-{max(ratios):.3f}", f"{least:.2f}"]


def mean(values: Sequence[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values)) if values else math.nan


def summary(operation: str) -> Iterator[str]:
    """Yield lines about several cases: drawn shapes, decoding, the gradient beside FlashAttention-2."""
    found = measured(operation)
    ratios = [
        best(operation, rows)
        for shape in drawn(operation == "attention")
        for causal in (False, True)
        if (rows := found.get(name(shape, causal)))
    ]
    if ratios:
        yield f"- Drawn shapes: best of ours {mean(ratios):.3f} in the geometric mean of {len(ratios)} cases (1.00)."
    if operation == "attention":
        for shape in (each for each in shapes(operation) if each[3] == 1):
            rows = found.get(name(shape, False), {})
            reached = max((rows[each].of_limit or 0.0 for each in OURS[operation] if each in rows), default=None)
            if reached is not None:
                yield f"- {label(shape, False)}: best of ours at {reached:.3f} of the bandwidth's limit (0.92)."
        return
    for line in OURS[operation]:
        target = 1.2 if line == "triton/peeled" else 1.0
        pairs = [(rows["torch/flash"], rows[line]) for rows in found.values() if line in rows and "torch/flash" in rows]
        quotients = [(flash.device_us or 0.0) / (own.device_us or math.inf) for flash, own in pairs]
        if quotients:
            yield f"- {line} over FlashAttention-2: {min(quotients):.3f} to {max(quotients):.3f} ({target:.1f})."


def tables() -> str:
    """Return the generated part of the page."""
    parts = []
    both = (("Forward", "attention", forward_targets), ("Forward and backward", "attention_grad", backward_targets))
    for title, operation, targets in both:
        found = list(cases(operation, targets))
        if not found:
            parts.append(f"## {title}\n\nNot measured yet.\n")
            continue
        head = ["cases", *OURS[operation], "best of ours"]
        table = pipe_table(head, list(grouped(operation, found)), right=set(head[1:]))
        asked, missed = sum(len(each.targets) for each in found), sum(len(each.missed) for each in found)
        said = "\n".join([f"- Targets met: {asked - missed} of {asked}.", *summary(operation)])
        parts.append(f"## {title}\n\n{said}\n\n{table}\n")
        if misses := list(missed_by_group(found)):
            parts.append(pipe_table(["missed by", "cases", "ratio", "target"], misses, {"ratio", "target"}) + "\n")
    return "\n".join(parts)


def filled(text: str) -> str:
    """Return the page with its tables and their commands."""
    commands = "\n".join(wrapped(command(f"{name}_sizes/{name}")) for name in ("attention", "attention_grad"))
    return with_sentences(with_marked(text, tables()), [(r"names-in-older-tables\): ```\n([^`]*)\n```", [commands])])


def write_shapes() -> None:
    for operation in ("attention", "attention_grad"):
        with (ROOT / "examples" / f"{operation}_shapes.csv").open("w", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows([DIMS, *shapes(operation)])


if __name__ == "__main__":
    write_shapes()
