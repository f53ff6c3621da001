"""Computes the findings of a report from its rows: sentences, the most important first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from suite.report.comparisons import Comparison, comparisons
from suite.report.load import Entry, Run
from suite.report.ranking import LEVEL, CaseResult, Outcome, ranked_cases
from suite.report.wording import interval, percent_of_limit, ratio
from suite.results.render import crossovers, gpus_remark, number
from suite.results.row import Status
from suite.results.two_times import order_differs, rows_with_both_times

RAN = (Status.OK, Status.WRONG, Status.ERROR, Status.TIMEOUT)


@dataclass(frozen=True)
class Finding:
    """A sentence, and its most important figure."""

    figure: str
    sentence: str


def findings(runs: Sequence[Run]) -> list[Finding]:
    """The findings on the rows of `runs`. The first three are the most important."""
    failures, agreements = zip(*(_agreement(run.entries) for run in runs), strict=True)
    results = [ranked_cases(run.on_its_device) for run in runs]
    parts = [
        *_with_run_names(runs, failures),
        *_with_run_names(runs, (_weak(run.entries) for run in runs)),
        *(finding for each in comparisons(runs) for finding in (_between_runs(each), *_changed_winners(each))),
        *_with_run_names(runs, map(_against_vendors, results)),
        *_with_run_names(runs, map(_largest_lead, results)),
        *_with_run_names(runs, (_nearest_to_limit(run.on_its_device) for run in runs)),
        *_with_run_names(runs, map(_largest_gap, results)),
        *_with_run_names(runs, map(_other_orders, results)),
        *_with_run_names(runs, agreements),
        *_with_run_names(runs, map(_cpu_against_gpu, runs)),
        *_with_run_names(runs, map(_fastest_without_vendor, results)),
        *_with_run_names(runs, (_not_ranked(run.entries) for run in runs)),
        *_with_run_names(runs, (_between_gpus(run.entries) for run in runs)),
    ]
    return parts or [Finding("0 rows", "No row was checked or timed.")]


def _with_run_names(runs: Sequence[Run], found: Iterable[Iterable[Finding]]) -> Iterator[Finding]:
    """The findings on each run. If there are several runs, the run's name stands in front."""
    for run, each in zip(runs, found, strict=True):
        for finding in each:
            yield finding if len(runs) == 1 else replace(finding, sentence=f"{run.label}: {finding.sentence}")


def _agreement(entries: Sequence[Entry]) -> tuple[list[Finding], list[Finding]]:
    """The findings on failed rows, and the finding that no row failed. One of the two lists is empty."""
    ran = [entry for entry in entries if entry.row.status in RAN]
    failed = [entry for entry in ran if entry.row.failed]
    if failed:
        kinds = Counter("suspect" if entry.row.status is Status.OK else str(entry.row.status) for entry in failed)
        counts = ", ".join(f"{count} {kind}" for kind, count in kinds.most_common())
        text = f"{len(failed)} of the {len(ran)} rows that ran failed ({counts}), the first of them {_name(failed[0])}"
        text += f": {failed[0].row.diagnosis}." if failed[0].row.diagnosis else "."
        return [Finding(f"{len(failed)} failed", text)], []
    judged = [entry for entry in ran if entry.row.error_ratio is not None]
    if not judged:
        return [], []
    worst = max(judged, key=lambda entry: entry.row.error_ratio or 0.0)
    text = (
        f"All {len(judged)} results that were judged agree with float64; the largest error is "
        f"{number(worst.row.error_ratio, 2)} of its bound ({_name(worst)})."
    )
    return [], [Finding(f"{len(judged)} agree", text)]


def _weak(entries: Sequence[Entry]) -> Iterator[Finding]:
    """The rows whose result says little, even if it is ok."""
    weak = [entry for entry in entries if entry.row.is_weak]
    if weak:
        cases = dict.fromkeys(f"{entry.case_name} ({entry.row.weakness})" for entry in weak)
        text = f"An ok proves little in {len(weak)} of the {len(entries)} rows: {'; '.join(cases)}."
        yield Finding(f"{len(weak)} weak", text)


def _name(entry: Entry) -> str:
    return f"{entry.row.implementation} in {entry.case_name}"


def _between_runs(found: Comparison) -> Finding:
    low, high = found.range
    return Finding(
        f"{ratio(found.middle)} times",
        f"{found.new} is {ratio(found.middle)} times as fast as {found.base}: the median over {len(found.pairs)} rows "
        f"that both have; the rows reach from {ratio(low)} to {ratio(high)}.",
    )


def _changed_winners(found: Comparison) -> Iterator[Finding]:
    """The cases that another implementation wins in the other run."""
    if not found.cases:
        return
    figure, end = f"{len(found.changes)} of {found.cases}", "."
    if found.changes:
        texts = (
            f"{each.base.case_name}, {each.base.row.implementation} ({ratio(each.base_ratio)} times as fast) on "
            f"{found.base} and {each.new.row.implementation} ({ratio(each.new_ratio)} times) on {found.new}"
            for each in found.changes
        )
        end = f": {'; '.join(texts)}."
    yield Finding(figure, f"{found.new} has a different winner than {found.base} in {figure} cases{end}")


def _against_vendors(results: Sequence[CaseResult]) -> Iterator[Finding]:
    outcomes = Counter(result.outcome for result in results if result.outcome)
    if not outcomes:
        return
    total = outcomes.total()
    sentence = (
        f"In {outcomes[Outcome.FASTER]} of {total} cases an implementation is faster than the best vendor library; "
        f"in {outcomes[Outcome.LEVEL]} the best one is level with it within {100 * LEVEL:g}%, "
        f"in {outcomes[Outcome.SLOWER]} slower"
    )
    if outcomes[Outcome.UNDECIDED]:
        sentence += f", and {outcomes[Outcome.UNDECIDED]} are undecided: their 95% intervals are too wide"
    yield Finding(f"{outcomes[Outcome.FASTER]} of {total}", f"{sentence}.")


def _largest_lead(results: Sequence[CaseResult]) -> Iterator[Finding]:
    pairs = _pairs_with_outcome(results, Outcome.FASTER)
    if pairs:
        other, vendor = max(pairs, key=lambda pair: pair[0].row.vs_best_low or 0.0)
        yield _relative_speed("lead over", other, vendor)


def _largest_gap(results: Sequence[CaseResult]) -> Iterator[Finding]:
    pairs = _pairs_with_outcome(results, Outcome.SLOWER)
    if pairs:
        other, vendor = min(pairs, key=lambda pair: pair[0].row.vs_best_high or 0.0)
        yield _relative_speed("gap to", other, vendor)


def _pairs_with_outcome(results: Sequence[CaseResult], outcome: Outcome) -> list[tuple[Entry, Entry]]:
    """The pairs (best other implementation, best vendor library) of the cases with this outcome."""
    found = [(result.other, result.vendor) for result in results if result.outcome is outcome]
    return [(other, vendor) for other, vendor in found if other is not None and vendor is not None]


def _relative_speed(what: str, other: Entry, vendor: Entry) -> Finding:
    text = (
        f"The largest {what} a vendor library: {other.row.implementation} is {ratio(other.ratio)} times "
        f"({interval(other.row)}) as fast as {vendor.row.implementation} in {other.case_name}."
    )
    return Finding(f"{ratio(other.ratio)} times", text)


def _nearest_to_limit(entries: Sequence[Entry]) -> Iterator[Finding]:
    """The row nearest to the limit of memory, and the row nearest to that of arithmetic."""
    found = []
    for kind in ("memory", "arithmetic"):
        known = [each for each in entries if each.ranked and each.row.of_limit and each.row.limit.startswith(kind)]
        if known:
            best = max(known, key=lambda entry: entry.row.of_limit or 0.0)
            found.append((percent_of_limit(best.row), f"of the {kind} limit ({_name(best)})"))
    if found:
        parts = " and ".join(f"{percent} {text}" for percent, text in found)
        yield Finding(" and ".join(percent for percent, _ in found), f"Nearest to the hardware's limits: {parts}.")


def _other_orders(results: Sequence[CaseResult]) -> Iterator[Finding]:
    """The cases in which rows change places between one call alone and calls back to back."""
    cases = [result for result in results if len(rows_with_both_times(result.rows)) > 1]
    found = {result.first.case_name: texts for result in cases if (texts := order_differs(result.rows))}
    if found:
        text = "; ".join(f"{name}: {'; '.join(texts)}" for name, texts in found.items())
        yield Finding(f"{len(found)} of {len(cases)}", f"Calls back to back rank implementations differently. {text}.")
    elif cases:
        text = "No two implementations change places between single calls and calls back to back."
        yield Finding(f"0 of {len(cases)}", text)


def _cpu_against_gpu(run: Run) -> Iterator[Finding]:
    """Compares the CPU with the GPU. Noisy rows count, because a device without its fastest row would lose."""
    for part in run.parts:
        for text in crossovers(entry.row for entry in part.entries if entry.timed):
            yield Finding("CPU and GPU", f"{text}.")


def _fastest_without_vendor(results: Sequence[CaseResult]) -> Iterator[Finding]:
    """The number of cases that each implementation wins, if no case has a vendor library to compare with."""
    if any(result.outcome for result in results):
        return
    fastest = Counter(result.fastest.row.implementation for result in results if result.fastest is not None)
    if fastest:
        name, count = fastest.most_common(1)[0]
        text = (
            f"{name} is the fastest in {count} of {fastest.total()} cases that have at least two timed implementations."
        )
        yield Finding(f"{count} of {fastest.total()}", text)


def _not_ranked(entries: Sequence[Entry]) -> Iterator[Finding]:
    timed = [entry for entry in entries if entry.row.status is Status.OK and entry.row.device_us]
    count = sum(entry.row.noisy and not entry.ranked for entry in timed)
    if count:
        text = f"{count} of {len(timed)} timed rows are noisy: their intervals are too wide. They are not ranked."
        yield Finding(f"{count} noisy", text)
    if entries and not timed:
        yield Finding("0 times", "No row has a time: the implementations were checked for agreement only.")


def _between_gpus(entries: Sequence[Entry]) -> Iterator[Finding]:
    """The spread of the rows that were timed on several GPUs of a model."""
    spreads = [entry.row.gpu_spread for entry in entries if entry.row.gpu_spread is not None]
    if spreads:
        sentence = f"{gpus_remark(entry.row for entry in entries)}."
        yield Finding(f"{100 * max(spreads):.1f}% between GPUs", sentence)
