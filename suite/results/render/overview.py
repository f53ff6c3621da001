"""Summarizes all cases of a run: the winner of each, the best row of each framework, and findings in sentences."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from suite.core.text import one_line
from suite.results.groups import Standing, cases, standing
from suite.results.render.columns import number
from suite.results.render.labels import case_title, short_case, short_dtype
from suite.results.render.layout import Field, table, wrapped
from suite.results.render.view import Comparison
from suite.results.row import Row
from suite.results.unranked import unranked_reason

if TYPE_CHECKING:
    from rich.text import Text


def overview_lines(rows: Iterable[Row], width: int, baseline: str = "") -> list[Text]:
    """A table of all cases if any has ranked rows, and the findings. For a single case, the findings alone."""
    from rich.text import Text

    rows = list(rows)
    groups = cases(rows)
    found = [standing(group) for group in groups]
    is_ranked = len(groups) > 1 and any(each.comparable and each.ranked for each in found)
    lines = [Text("all cases", style="bold"), *_table(groups, width, baseline)] if is_ranked else []
    return [*lines, *(Text(line) for text in findings(rows, baseline) for line in wrapped(text, width, indent="  "))]


def _table(groups: Sequence[Sequence[Row]], width: int, baseline: str) -> list[Text]:
    comparisons = [Comparison(group, baseline) for group in groups]
    found = [standing(group) for group in groups]
    names = [case_title(group[0]) for group in groups]
    ranked = [row for each in found for row in each.timed if each.is_ranked(row)]
    frameworks = list(dict.fromkeys(map(_framework, ranked)))
    fields = [
        Field("case", [one_line(name) for name in names], False),
        Field("winner", [_winner(each) for each in found], False),
        Field(
            comparisons[0].head,
            [
                number(each.ratio(among.winner), 3) if among.winner is not None else ""
                for each, among in zip(comparisons, found, strict=True)
            ],
        ),
    ]
    for framework in frameworks:
        cells = [_best(among, each, framework) for among, each in zip(found, comparisons, strict=True)]
        fields.append(Field(framework, cells))
    return table(fields, width)


def _winner(found: Standing) -> str:
    if found.winner is not None:
        return one_line(found.winner.implementation)
    return one_line(f"none: {unranked_reason(found)}")


def _framework(row: Row) -> str:
    return one_line(row.implementation.partition("/")[0])


def _best(among: Standing, comparison: Comparison, framework: str) -> str:
    """The framework's fastest row: its variant and ratio, `gluon 1.01`, or its time if there is no reference."""
    best = among.best(lambda row: _framework(row) == framework)
    if best is None:
        return ""
    ratio = comparison.ratio(best)
    value = number(ratio, 3) if ratio is not None else f"{number(best.device_us, 4)} us"
    return " ".join(filter(None, (one_line(best.implementation.partition("/")[2]), value)))


def findings(rows: Iterable[Row], baseline: str = "") -> list[str]:
    """A sentence for each operation and dtype, on the case that takes the reference longest.

    `matmul bf16: cuda/wgmma is 1.01x as fast as torch at M=N=K=4096; plain triton 0.960`. Rows of vendors and of peers,
    and noisy rows, are left out.
    """
    kinds: dict[tuple[str, ...], list[Comparison]] = {}
    for group in cases(rows):
        comparison = Comparison(group, baseline)
        if _candidates(comparison):
            kinds.setdefault((group[0].operation, short_dtype(group[0])), []).append(comparison)
    return [_finding(" ".join(kind), found) for kind, found in kinds.items()]


def _candidates(comparison: Comparison) -> list[Row]:
    """Our own ranked rows of a case that have a reference, the fastest first."""
    return [
        row
        for row in standing(comparison.rows).ranked
        if row.is_ours and row is not comparison.reference(row) and comparison.ratio(row) is not None
    ]


def _finding(kind: str, found: Sequence[Comparison]) -> str:
    largest = max(found, key=_reference_us)
    best, *others = _candidates(largest)
    reference = largest.reference(best)
    other = reference.implementation if reference is not None else largest.head
    within = " (no difference within the interval)" if largest.is_faster(best) is None else ""
    ratio = f"{_factor(largest.ratio(best))}x as fast as {other}{within}"
    text = f"{kind}: {best.implementation} is {ratio} at {short_case(best.case)}"
    for row in others:
        if row.implementation == "triton":
            text += f"; plain triton {_factor(largest.ratio(row))}"
    if len(found) > 1:
        ahead = sum(1 for each in found if each.is_faster(_candidates(each)[0]))
        text += f"; ahead of {_reference_name(largest)} in {ahead} of {len(found)} cases"
    return one_line(text)


def _reference_us(comparison: Comparison) -> float:
    reference = comparison.reference(comparison.rows[0])
    return reference.device_us or 0.0 if reference is not None else 0.0


def _reference_name(comparison: Comparison) -> str:
    return comparison.baseline or "the best vendor"


def _factor(ratio: float | None) -> str:
    """A ratio with two decimals, or with three digits below 0.1."""
    return "" if ratio is None else f"{ratio:.2f}" if ratio >= 0.1 else number(ratio, 2)
