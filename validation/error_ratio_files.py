"""The results of error_ratios.py: ratios of right kernels, refusals of wrong ones, their verdict and files."""

from __future__ import annotations

import csv
import io
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from suite import ops
from suite.results.render import pipe_table, plain

RIGHT_AT_MOST = 0.7
"""Largest error ratio that a right kernel may have."""


@dataclass(frozen=True)
class Ratio:
    """One implementation on one case. `known`: the known limit of its library that the case exceeds, or empty."""

    operation: str
    case: str
    dtype: str
    precision: str
    implementation: str
    status: str
    error_ratio: float | None
    reason: str = ""
    known: str = ""

    @property
    def passed(self) -> bool:
        if self.known or self.status in ("unsupported", "unavailable"):
            return True
        return self.status == "ok" and self.error_ratio is not None and self.error_ratio <= RIGHT_AT_MOST


@dataclass(frozen=True)
class Refusal:
    """One wrong kernel of the gallery: its largest ratio, and the reason of its refusal."""

    operation: str
    name: str
    about: str
    agrees: bool
    error_ratio: float
    reason: str

    @property
    def kind(self) -> str:
        return self.reason.partition(":")[0]

    @property
    def passed(self) -> bool:
        return not self.agrees and (self.kind != "value" or self.error_ratio > 1.0)


@dataclass(frozen=True)
class Group:
    """The distribution of the ratios of one implementation in one dtype and precision, over all sizes and families."""

    operation: str
    dtype: str
    precision: str
    implementation: str
    count: int
    median: float
    nearly_all: float
    """95% of the ratios are at most this."""
    largest: float
    where: str
    """The case of the largest ratio."""


def groups(ratios: Iterable[Ratio]) -> list[Group]:
    """Group the ratios of results that agree, in order of first appearance."""
    found: dict[tuple[str, ...], list[Ratio]] = {}
    for each in ratios:
        if each.status == "ok" and each.error_ratio is not None:
            key = each.operation, each.dtype, each.precision, each.implementation
            found.setdefault(key, []).append(each)
    made = []
    for key, members in found.items():
        members.sort(key=lambda each: float(each.error_ratio or 0))
        values = [float(each.error_ratio or 0) for each in members]
        nearly_all = values[math.ceil(0.95 * len(values)) - 1]
        operation, dtype, precision, implementation = key
        made.append(
            Group(operation, dtype, precision, implementation, len(values), statistics.median(values), nearly_all,
                  values[-1], members[-1].case)
        )  # fmt: skip
    return made


def verdict(ratios: Sequence[Ratio], refusals: Sequence[Refusal]) -> tuple[bool, str]:
    """Return whether everything passed, and a sentence with the numbers."""
    right = [each for each in ratios if each.status == "ok" and each.error_ratio is not None]
    largest = max((float(each.error_ratio or 0) for each in right), default=0.0)
    failed = [each for each in ratios if not each.passed]
    accepted = [each for each in refusals if not each.passed]
    by_value = [each.error_ratio for each in refusals if each.kind == "value"]
    passed = bool(right) and not failed and not accepted
    text = (
        f"{'passed' if passed else 'not passed'}: {len(right)} results of right kernels, largest ratio {largest:.3f} "
        f"(at most {RIGHT_AT_MOST:g}), {len(failed)} beyond it or failed, {sum(bool(r.known) for r in ratios)} known "
        "to be beyond their library"
    )
    if refusals:
        least = f", the least ratio by value {min(by_value):.3g} (above 1)" if by_value else ""
        text += f"; {len(refusals)} wrong kernels, {len(accepted)} not refused{least}"
    return passed, text


def to_csv(found: Sequence[Ratio] | Sequence[Refusal], kind: type[Ratio] | type[Refusal]) -> str:
    """Format `error_ratios.csv` or `wrong_kernels.csv`."""
    text = io.StringIO()
    writer = csv.DictWriter(text, [each.name for each in fields(kind)], lineterminator="\n")
    writer.writeheader()
    writer.writerows({**asdict(each), "reason": " ".join(each.reason.split())} for each in found)
    return text.getvalue()


def ratios_of(text: str) -> list[Ratio]:
    """Read the ratios that `to_csv` has written."""
    rows = csv.DictReader(io.StringIO(text))
    return [Ratio(**{**row, "error_ratio": float(row["error_ratio"]) if row["error_ratio"] else None}) for row in rows]


def refusals_of(text: str) -> list[Refusal]:
    """Read the refusals that `to_csv` has written."""
    rows = csv.DictReader(io.StringIO(text))
    return [
        Refusal(**{**row, "agrees": row["agrees"] == "True", "error_ratio": float(row["error_ratio"])}) for row in rows
    ]


HEADS = ("operation", "dtype", "precision", "implementation", "results", "median", "95%", "largest", "of")


def markdown(ratios: Sequence[Ratio], refusals: Sequence[Refusal], environment: Mapping[str, Any]) -> str:
    """Format `error_ratios.md`."""
    device = plain(environment.get("device", {}).get("name", "an unknown device"))
    versions = ", ".join(f"{name} {version}" for name, version in environment.get("packages", {}).items())
    command = str(environment.get("command", "")).replace("`", "'")
    body = [
        [
            *(plain(text) for text in (each.operation, each.dtype, each.precision, each.implementation)),
            str(each.count),
            *(f"{value:.3f}" for value in (each.median, each.nearly_all, each.largest)),
            plain(each.where),
        ]
        for each in groups(ratios)
    ]
    lines = [
        f"# Largest error over its bound on {device}",
        "",
        f"Command: `{command}`. Versions: {plain(versions)}. {plain(verdict(ratios, refusals)[1])}. A result is one "
        "implementation on one case: the largest ratio over all elements of two draws of inputs. Where the bounds come "
        "from: docs/agreement.md.",
        "",
        pipe_table(list(HEADS), body, right=set(HEADS[4:8])),
        "",
    ]
    aside = [each for each in ratios if each.known or not each.passed]
    if aside:
        cells = [
            [plain(text) for text in (each.operation, each.case, each.dtype, each.precision, each.implementation)]
            + [each.status, plain(f"known: {each.known}" if each.known else each.reason)]
            for each in aside
        ]
        heads = ["operation", "case", "dtype", "precision", "implementation", "status", "why"]
        lines += ["## Not in the table", "", pipe_table(heads, cells, right=set()), ""]
    if refusals:
        cells = [
            [plain(each.name), plain(each.about), each.kind or "passes", f"{each.error_ratio:.3g}"]
            for each in sorted(refusals, key=lambda each: (each.passed, each.kind != "value", each.error_ratio))
        ]
        heads = ["wrong kernel", "what is wrong", "refused as", "largest ratio"]
        lines += ["## Wrong kernels", "", pipe_table(heads, cells, right={"largest ratio"}), ""]
    return "\n".join(lines)


OVERVIEW = ("operation", "results", "largest", "of", "known", "beyond or failed", "wrong kernels", "refused", "least")


def overview(folder: Path) -> str:
    """Format `README.md`: a line for each operation with results in the folder, and the verdict."""
    ratios, refusals, body = [], [], []
    for name in ops.alone():
        mine, wrong = (_read(folder / name / file) for file in ("error_ratios.csv", "wrong_kernels.csv"))
        right, refused = ratios_of(mine), refusals_of(wrong)
        if right or refused:
            body.append(_line(name, right, refused))
        ratios += right
        refusals += refused
    lines = [
        "# Largest error over its bound, by operation",
        "",
        f"{plain(verdict(ratios, refusals)[1])}. The folders have a table for each operation, with "
        "versions and command; the program also writes every result as CSV there. `known`: results beyond the limits "
        "of their library. `least`: the least ratio of a wrong kernel that is refused for its values. "
        "Where the bounds come from: docs/agreement.md.",
        "",
        pipe_table(list(OVERVIEW), body, right={"results", "largest", *OVERVIEW[4:]}),
        "",
    ]
    return "\n".join(lines)


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.is_file() else ""


def _line(name: str, ratios: Sequence[Ratio], refusals: Sequence[Refusal]) -> list[str]:
    right = [each for each in ratios if each.status == "ok" and each.error_ratio is not None]
    worst = max(right, key=lambda each: float(each.error_ratio or 0), default=None)
    where = f"{worst.implementation}, {worst.case}, {worst.dtype}" if worst else ""
    by_value = [each.error_ratio for each in refusals if each.kind == "value"]
    return [
        plain(name),
        str(len(right)),
        f"{worst.error_ratio:.3f}" if worst else "",
        plain(where),
        str(sum(bool(each.known) for each in ratios)),
        str(sum(not each.passed for each in ratios)),
        str(len(refusals)) if refusals else "",
        str(sum(each.passed for each in refusals)) if refusals else "",
        f"{min(by_value):.3g}" if by_value else "",
    ]
