"""Reads the times of plans that validation.matmul_plans has written, and compares choices with the best plan.

The choices are those of the fitted models of cuda_ref/matmul, for the device of the file, and of the short list of
validation/matmul_short_list.py.
"""

from __future__ import annotations

import csv
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor

from cuda_ref.matmul import _model as model
from cuda_ref.matmul import _model_tf32_float8 as model_tf32_float8
from cuda_ref.matmul import _tiles as tiles
from cuda_ref.matmul._rates import Rates
from cuda_ref.matmul._tiles import Plan, Problem
from validation.matmul_plot import Point
from validation.matmul_short_list import estimated_us, is_listed

DTYPES = {
    "ieee": torch.bfloat16,
    "tf32": torch.float32,
    "fast": torch.float8_e4m3fn,
    "promoted": torch.float8_e4m3fn,
}
"""The dtype that is measured in each precision."""
FACTS = Problem._fields[3:]
"""Columns of a file of 16 bits, beside the sizes, that the choice depends on."""
WRONG = 0.01
"""Smallest relative norm of a difference to the vendor's result that rounding does not explain."""
WORST = 5
"""Shapes of the table of the worst."""
AnyProblem = Problem | model_tf32_float8.Problem


def plan(name: str) -> Plan:
    """The plan of a name such as "wgmma/1/4": kernel, tile and parts."""
    kernel, tile, parts = name.split("/")
    return Plan(kernel, int(tile), int(parts))


def name(plan: Plan) -> str:
    return f"{plan.kernel}/{plan.tile}/{plan.parts}"


def predicted_us(plan: Plan, x: AnyProblem, rates: Rates) -> float:
    """The time that the model for this type predicts."""
    if isinstance(x, Problem):
        return model.predicted_us(plan, x, model.costs_of(rates))
    costs = model_tf32_float8.costs_of(rates)[x.kernel]
    return model_tf32_float8.predicted_us(plan, x, costs, model.costs_of(rates))


KINDS_OF_SETS = {
    "list": "listed shapes",
    "draws": "drawn shapes",
    "fit": "shapes of the fit",
    "served": "a server's shapes",
}
"""Names of the kinds of sets in the plot, by the beginnings of their files' names."""


@dataclass(frozen=True)
class Timed:
    """The measured plans of a shape."""

    sizes: tuple[int, int, int]
    x: AnyProblem
    rates: Rates
    vendor_us: float
    plans: dict[str, float]
    how: tuple[str, str] = ("", "ieee")
    """Layout and precision."""

    @cached_property
    def chosen(self) -> str:
        """The model's choice among the measured plans."""
        return min(self.plans, key=lambda each: predicted_us(plan(each), self.x, self.rates))

    @cached_property
    def short_list(self) -> str:
        """The choice of the short list's rule among the measured plans."""
        return min(self._listed, key=lambda each: estimated_us(plan(each), self.x, self.rates))

    @property
    def _listed(self) -> list[str]:
        return [each for each in self.plans if is_listed(plan(each))] or list(self.plans)

    @property
    def best(self) -> str:
        return min(self.plans, key=self.plans.__getitem__)

    @property
    def best_listed(self) -> str:
        """The fastest measured plan of the short list."""
        return min(self._listed, key=self.plans.__getitem__)

    def without(self, kernel: str) -> float | None:
        """The time of the fastest plan of the other kernels, None if there is none."""
        return min((us for each, us in self.plans.items() if plan(each).kernel != kernel), default=None)

    def vendor_ratio(self, name: str) -> float:
        return self.vendor_us / self.plans[name]

    def best_ratio(self, name: str) -> float:
        return self.plans[self.best] / self.plans[name]

    @property
    def text(self) -> str:
        return " x ".join(map(str, self.sizes))


def read(path: Path) -> list[Timed]:
    """Read the shapes of a file of times or of a summary (`summarize`). Prints results that are wrong.

    A file without columns for the device is from an H200. A file without a column for the precision is of
    16-bit products, or of `fast` ones in float8.
    """
    found: dict[tuple[tuple[int, int, int], AnyProblem, Rates, tuple[str, str]], dict[str, float]] = {}
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    usual = "fast" if any("8/" in row.get("plan", "").partition("/")[0] + "/" for row in rows) else "ieee"
    for row in rows:
        sizes = int(row["M"]), int(row["N"]), int(row["K"])
        if float(row.get("error") or 0) > WRONG:
            print(f"WRONG {' x '.join(map(str, sizes))} {row['plan']}: {row['error']}")
        rates = Rates(row["device"], float(row["clock"]), float(row["dram"])) if row.get("device") else Rates()
        precision = row.get("precision") or usual
        layout = row.get("layout") or ("nt" if DTYPES[precision].itemsize == 1 else "nn")
        x = _problem(row, sizes, layout, precision)
        found.setdefault((sizes, x, rates, (layout, precision)), {}).update(_times(row))
    complete = {key: plans for key, plans in found.items() if "torch" in plans and len(plans) > 1}
    return [Timed(*key, plans.pop("torch"), plans, how) for (*key, how), plans in complete.items()]


def _times(row: dict[str, str]) -> dict[str, float]:
    """The times in us by plan, from a line of a summary or a line of one plan."""
    if "plans" not in row:
        return {row["plan"]: float(row["us"])}
    words = row["plans"].split()
    plans = dict(zip(words[::2], map(float, words[1::2]), strict=True))
    return {"torch": float(row["torch"]), **plans}


def summarize(timed: Sequence[Timed], path: Path) -> None:
    """Write a line for each shape of one precision: the times of the vendor and of the plans that `table` compares.

    These are the two fastest plans, the fastest of each kernel and of the short list, and the choices of the model and
    of the short list.
    """
    with path.open("w", newline="") as file:
        rows = csv.writer(file, lineterminator="\n")
        usual = all(isinstance(each.x, Problem) for each in timed)
        heads = FACTS if usual else ("multiprocessors", "layout", "precision")
        rows.writerow((*"MNK", *heads, "device", "clock", "dram", "torch", "plans"))
        for each in timed:
            fastest: dict[str, str] = {}
            by_time = sorted(each.plans, key=each.plans.__getitem__)
            for some in by_time:
                fastest.setdefault(plan(some).kernel, some)
            kept = {*by_time[:2], *fastest.values(), each.best_listed, each.chosen, each.short_list}
            # In the order of the file: of plans with equal predicted times the first one is chosen.
            plans = " ".join(f"{some} {us:.4g}" for some, us in each.plans.items() if some in kept)
            facts = map(int, each.x[3:]) if isinstance(each.x, Problem) else (each.x.multiprocessors, *each.how)
            rows.writerow((*each.sizes, *facts, *each.rates, f"{each.vendor_us:.4g}", plans))


def _problem(row: dict[str, str], sizes: tuple[int, int, int], layout: str, precision: str) -> AnyProblem:
    if precision == "ieee":
        multiprocessors = int(row["multiprocessors"])
        facts = {each: row[each] == "1" for each in FACTS if each != "multiprocessors"}
        return Problem(*sizes, multiprocessors=multiprocessors, **facts)
    a, b = matrices(sizes, layout, DTYPES[precision])
    multiprocessors = int(row.get("multiprocessors") or 132)
    return model_tf32_float8.problem_of(a, b, precision)._replace(multiprocessors=multiprocessors)


def matrices(sizes: tuple[int, int, int], layout: str, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Return operands on the meta device. A letter t in the layout stores that operand transposed."""
    M, N, K = sizes

    def matrix(rows: int, columns: int, letter: str) -> Tensor:
        if letter == "t":
            return torch.empty(columns, rows, dtype=dtype, device="meta").t()
        return torch.empty(rows, columns, dtype=dtype, device="meta")

    return matrix(M, K, layout[0]), matrix(K, N, layout[1])


def table(sets: dict[str, list[Timed]]) -> str:
    """Format as Markdown the ratios of each set, the same by kind of shape, the kernels' gains, and the worst shapes.

    A cell has the geometric mean, and the least ratio or the number of shapes in parentheses.
    """
    heads = ("chosen, of cuBLAS", "best, of cuBLAS", "chosen, of the best", "short list, of the best", "its best plan")
    lines = [f"| shapes | {' | '.join(heads)} |", f"|---|{'---|' * len(heads)}"]
    for title, timed in sets.items():
        complete = [each for each in timed if len(each.plans) > 1]
        ratios = (
            [each.vendor_ratio(each.chosen) for each in timed],
            [each.vendor_ratio(each.best) for each in complete],
            [each.best_ratio(each.chosen) for each in complete],
            [each.best_ratio(each.short_list) for each in complete],
            [each.best_ratio(each.best_listed) for each in complete],
        )
        cells = [f"{mean(values):.3f} ({min(values):.3f})" if values else "" for values in ratios]
        lines.append(f"| {title}: {len(timed)} | {' | '.join(cells)} |")
    lines += ["", f"| chosen, of cuBLAS | {' | '.join(sets)} |", f"|---|{'---|' * len(sets)}"]
    for kind in ("at most 16 rows or columns", "others, copied for TMA", "others"):
        values = [
            [each.vendor_ratio(each.chosen) for each in timed if kind_of(each.x) == kind] for timed in sets.values()
        ]
        lines.append(f"| {kind} | {' | '.join(f'{mean(v):.3f} ({len(v)})' if v else '' for v in values)} |")
    lines += ["", *_kernels([each for timed in sets.values() for each in timed])]
    lines += ["", "| the worst: M x N x K | chosen | of cuBLAS | best | of cuBLAS |", "|---|---|---:|---|---:|"]
    for each in sorted((t for timed in sets.values() for t in timed), key=lambda t: t.vendor_ratio(t.chosen))[:WORST]:
        chosen, best = (f"{name} | {each.vendor_ratio(name):.3f}" for name in (each.chosen, each.best))
        lines.append(f"| {each.text} | {chosen} | {best} |")
    return "\n".join(lines)


def _kernels(timed: Sequence[Timed]) -> list[str]:
    """A table of the shapes in which a kernel has the fastest plan, and how much longer the others take there."""
    best: dict[str, list[float]] = {}
    for each in timed:
        kernel = plan(each.best).kernel
        others = each.without(kernel)
        best.setdefault(kernel, []).extend([] if others is None else [others / each.plans[each.best]])
    lines = ["| kernel | fastest of shapes | time of the other kernels' best, over its own: mean, most |"]
    lines.append("|---|---:|---:|")
    for kernel, ratios in sorted(best.items(), key=lambda item: -len(item[1])):
        if ratios:
            lines.append(f"| {kernel} | {len(ratios)} | {mean(ratios):.3f}, {max(ratios):.2f} |")
    return lines


def plotted(sets: dict[str, list[Timed]]) -> dict[str, dict[str, list[Point]]]:
    """The points of the plot, of the chosen plan, by kind of set."""
    rows: dict[str, dict[str, list[Point]]] = {}
    for title, timed in sets.items():
        name = KINDS_OF_SETS.get(title.partition("_")[0], title)
        points = [Point(intensity(each.x), waves(each.x), each.vendor_ratio(each.chosen)) for each in timed]
        rows.setdefault(f"cuda/wgmma, {name}", {}).setdefault("", []).extend(points)
    return rows


def intensity(x: AnyProblem) -> float:
    return x.M * x.N * x.K / (x.M * x.K + x.K * x.N + x.M * x.N)


def waves(x: AnyProblem) -> float:
    return -(-x.M // 128) * -(-x.N // 256) / x.multiprocessors


def kind_of(x: AnyProblem) -> str:
    if min(x.M, x.N) <= tiles.STREAM_FEW:
        return "at most 16 rows or columns"
    copied = x.a_copied or x.b_copied if isinstance(x, Problem) else x.copied
    return "others, copied for TMA" if copied else "others"


def mean(ratios: Sequence[float]) -> float:
    """The geometric mean."""
    return math.exp(statistics.fmean(math.log(each) for each in ratios))
