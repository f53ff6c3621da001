"""Summarizes a whole run: counts, exit status, and the size from which a GPU is faster than the CPU."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from statistics import median

from suite.core.text import one_line
from suite.results.groups import cases, standings
from suite.results.render.labels import case_title
from suite.results.row import FAILURES, Row, Status

MAX_NAMED = 3
"""The largest number of noisy rows that are named at the end of a run."""


def summary(rows: Sequence[Row]) -> str:
    """The number of rows by status: `40 rows: 36 ok, 4 unsupported`."""
    counts = Counter(row.status for row in rows)
    return f"{len(rows)} rows: " + ", ".join(f"{count} {status}" for status, count in counts.most_common())


def progress_line(rows: Sequence[Row]) -> str:
    """The outcome of one case: `matmul M=N=K=64 fp32: 3 ok, 1 wrong (cuda/tiled)`; empty if nothing supports it.

    Unsupported rows are left out, and rows that failed are named.
    """
    ran = [row for row in rows if row.status is not Status.UNSUPPORTED]
    if not ran:
        return ""
    names: dict[Status, list[str]] = {}
    for row in ran:
        names.setdefault(row.status, []).append(row.implementation)
    parts = [f"{len(each)} {status}{_named(each) if status in FAILURES else ''}" for status, each in names.items()]
    return one_line(f"{case_title(ran[0])}: {', '.join(parts)}")


def _named(names: Sequence[str]) -> str:
    return f" ({', '.join(names)})"


def failures(rows: Iterable[Row], *, strict: bool = False) -> list[Row]:
    """The rows that are wrong, an error, a timeout, or faster than the device can be; `strict`: or weak."""
    return [row for row in rows if row.failed or (strict and row.is_weak)]


def exit_status(rows: Iterable[Row], *, strict: bool = False) -> int:
    """1 if any row is among the `failures`, else 0."""
    return 1 if failures(rows, strict=strict) else 0


def weak_remark(rows: Sequence[Row]) -> str:
    """A sentence on the rows that say little; empty if there are none."""
    weak = [row for row in rows if row.is_weak]
    if not weak:
        return ""
    reasons = "; ".join(dict.fromkeys(row.weakness for row in weak))
    return one_line(f"{len(weak)} of {len(rows)} rows prove little even if they are ok: {reasons}")


def gpus_remark(rows: Iterable[Row]) -> str:
    """A sentence on the spread between the GPUs of a model; empty if no row was timed on several."""
    found = [row for row in rows if row.gpu_spread is not None]
    if not found:
        return ""
    most = max(found, key=lambda row: row.gpu_spread or 0.0)
    middle, high = (100 * (each or 0.0) for each in (median(row.gpu_spread or 0.0 for row in found), most.gpu_spread))
    return one_line(
        f"{len(found)} rows were timed on up to {max(row.gpus or 1 for row in found)} GPUs: the slowest takes "
        f"{middle:.1f}% more time than the fastest (median), {high:.1f}% at most "
        f"({case_title(most)} {most.implementation})"
    )


def noise_remark(rows: Iterable[Row], limit: float) -> str:
    """A sentence that names the noisy rows that are not ranked, and a remedy; empty if there are none."""
    found = [each for group in cases(rows) for each in standings(group).values()]
    noisy = [row for each in found for row in each.timed if row.noisy and not each.is_ranked(row)]
    if not noisy:
        return ""
    names = [f"{case_title(row)} {row.implementation}" for row in noisy]
    more = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
    return one_line(
        f"{len(noisy)} noisy row{'s' if len(noisy) > 1 else ''}, not ranked (95% interval wider than "
        f"+- {100 * limit:g}%, or time and ratio contradict each other): {'; '.join(names[:MAX_NAMED])}{more}. "
        "Run again while nothing else uses the machine; on a CPU also with fewer threads (OMP_NUM_THREADS); "
        "--max-noise PERCENT sets another limit"
    )


def crossovers(rows: Iterable[Row]) -> list[str]:
    """The size from which the best GPU row beats the best CPU row: a text for each operation, dtype and precision.

    Rows are compared by latency, the time of the whole call seen from the host. If transfers were timed, they are also
    compared by the time of the whole program: inputs to the device, call, result back. Empty for rows of one kind of
    device. Noisy rows count: rows of a host are often noisy, and leaving out its fastest would favour the GPU.
    """
    sweeps: dict[tuple[str, str, str], list[list[Row]]] = {}
    for group in cases(rows):
        timed = [row for row in group if row.status is Status.OK and row.latency_us is not None]
        if len({row.device == "cpu" for row in timed}) == 2:
            sweeps.setdefault((timed[0].operation, timed[0].dtype, timed[0].precision), []).append(timed)
    texts = []
    for names, groups in sweeps.items():
        found = [f"with data already on the device: {_wins_from(groups, 'latency_us')}"]
        if any(row.program_us is not None for group in groups for row in group):
            found.append(f"with transfers through pageable memory: {_wins_from(groups, 'program_us')}")
            found.append(f"through pinned memory: {_wins_from(groups, 'program_pinned_us')}")
        texts.append(f"{' '.join(names)}: the GPU is faster, {'; '.join(found)}")
    return texts


def _wins_from(groups: Sequence[Sequence[Row]], column: str) -> str:
    """The smallest size from which the GPU stays ahead by `column`: `from N=65536 on`. Groups are in order of size."""
    first = None
    for group in groups:
        known = [(getattr(row, column), row.device == "cpu") for row in group if getattr(row, column) is not None]
        gpu_wins = bool(known) and not min(known)[1]
        first = (first or group[0].case) if gpu_wins else None
    return f"from {first} on" if first else "at none of these sizes"
