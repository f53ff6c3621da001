"""Compares the two sides' medians, and formats the table of the verdicts."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from suite.doctor.timer_proof.checks import SHARE, SHORT_US, SLACK_US, standard
from suite.results.render import number, pipe_table, plain
from validation.nsight.profiler import EMPTY


@dataclass
class Side:
    """The numbers of one side for one implementation on one case."""

    medians: list[float] = field(default_factory=list)
    """Time of the kernels in us, one median for each block."""
    samples: int = 0
    names: list[str] = field(default_factory=list)
    """Names of the kernels of the last call."""
    config: str = ""
    other_us: float = 0.0
    """Time of copies and fills, not part of the medians."""
    clocks: list[float] = field(default_factory=list)
    """SM clock in MHz before the calls, one median for each block."""
    reason: str = ""
    """Reason why there are no numbers."""

    @property
    def mhz(self) -> float | None:
        return sum(self.clocks) / len(self.clocks) if self.clocks else None

    @property
    def us(self) -> float:
        return sum(self.medians) / len(self.medians)


@dataclass(frozen=True)
class NsightRow:
    """One row of the table."""

    operation: str
    case: str
    dtype: str
    precision: str
    implementation: str
    verdict: str
    suite_us: float | None = None
    nsight_us: float | None = None
    ratio: float | None = None
    difference_us: float | None = None
    tolerance_us: float | None = None
    kernels: int | None = None
    offset_us: float | None = None
    suite_mhz: float | None = None
    nsight_mhz: float | None = None
    suite_blocks: str = ""
    nsight_blocks: str = ""
    suite_samples: int = 0
    nsight_samples: int = 0
    note: str = ""


Key = tuple[str, str, str, str, str]
"""Operation, case, dtype, precision, implementation."""


def judge(key: Key, ours: Side, theirs: Side, offset_us: float = 0.0) -> NsightRow:
    """Compare the two sides.

    The verdict is `ok` or `off`; `unlike` if the sides ran different kernels and disagree; `not run` if one has no
    number. `offset_us` is the difference for a kernel that does nothing. If one side has only some of the other side's
    kernels, it missed the rest: `off` even if the times agree.
    """
    if not ours.medians or not theirs.medians:
        return NsightRow(*key, verdict="not run", note=ours.reason or theirs.reason or "no samples")
    notes = [f"copies and fills, {ours.other_us:.2f} us, taken out"] if ours.other_us else []
    numbers: dict[str, Any] = {
        "suite_us": ours.us,
        "nsight_us": theirs.us,
        "ratio": ours.us / theirs.us,
        "difference_us": ours.us - theirs.us,
        "tolerance_us": standard(theirs.us),
        "kernels": len(theirs.names),
        "offset_us": offset_us,
        "suite_mhz": ours.mhz,
        "nsight_mhz": theirs.mhz,
        "suite_blocks": " ".join(number(us, 5) for us in ours.medians),
        "nsight_blocks": " ".join(number(us, 5) for us in theirs.medians),
        "suite_samples": ours.samples,
        "nsight_samples": theirs.samples,
    }
    lost = Counter(theirs.names) - Counter(ours.names), Counter(ours.names) - Counter(theirs.names)
    if any(lost):
        notes.append(f"kernels of one side alone: suite {_names(lost[1])}, Nsight Compute {_names(lost[0])}")
    if ours.config != theirs.config:
        notes.append(f"configurations: suite {ours.config}, Nsight Compute {theirs.config}")
    agree = abs(numbers["difference_us"] - offset_us) <= numbers["tolerance_us"]
    if any(lost) and not all(lost):
        verdict = "off"
    elif agree:
        verdict = "ok"
    else:
        verdict = "unlike" if any(lost) or ours.config != theirs.config else "off"
    return NsightRow(*key, verdict=verdict, **numbers, note="; ".join(notes))


def _names(kernels: Mapping[str, int]) -> str:
    return ", ".join(name[:60] for name in kernels) or "none"


VERDICTS = ("off", "unlike", "not run", "ok")
HEADS = (
    "verdict", "operation", "case", "dtype", "implementation", "suite us", "Nsight us", "ratio", "difference us",
    "allowed us", "kernels", "offset us", "suite MHz", "Nsight MHz", "suite's blocks", "Nsight's blocks", "note",
)  # fmt: skip
NUMERIC = frozenset(HEADS[5:16])


def cells(row: NsightRow) -> list[str]:
    """Return the cells of a row, in the order of HEADS."""
    return [
        row.verdict,
        row.operation,
        row.case,
        row.dtype,
        row.implementation,
        number(row.suite_us, 5),
        number(row.nsight_us, 5),
        number(row.ratio, 4),
        number(row.difference_us, 3),
        number(row.tolerance_us, 3),
        "" if row.kernels is None else str(row.kernels),
        number(row.offset_us, 3),
        number(row.suite_mhz, 4),
        number(row.nsight_mhz, 4),
        row.suite_blocks,
        row.nsight_blocks,
        row.note,
    ]


def to_csv(rows: Sequence[NsightRow]) -> str:
    """Format `nsight.csv`."""
    text = io.StringIO()
    writer = csv.DictWriter(text, [each.name for each in fields(NsightRow)], lineterminator="\n")
    writer.writeheader()
    writer.writerows({k: "" if v is None else v for k, v in asdict(row).items()} for row in rows)
    return text.getvalue()


def markdown(rows: Sequence[NsightRow], environment: Mapping[str, Any], version: str, period_ms: float) -> str:
    """Format `nsight.md`."""
    return "\n".join(
        [
            f"# The suite's recorder against Nsight Compute on {plain(environment['device']['name'])}",
            "",
            f"Command: `{environment['command']}`. {plain(version)}; "
            f"{plain(', '.join(f'{k} {v}' for k, v in environment['packages'].items()))}. "
            f"One call every {period_ms:g} ms on both sides, in shuffled rounds, the cache evicted before each; the "
            "sides take turns, and a block is one turn's median. Kernels only. "
            f"Allowed: {100 * SHARE:g}% above {SHORT_US:g} us, {SLACK_US:g} us up to there. {summary(rows)}.",
            "",
            pipe_table(list(HEADS), [[plain(cell) for cell in cells(row)] for row in rows], right=set(NUMERIC)),
            "",
        ]
    )


def summary(rows: Sequence[NsightRow]) -> str:
    """Count the rows of each verdict in a sentence."""
    counts = {verdict: sum(row.verdict == verdict for row in rows) for verdict in VERDICTS}
    return f"{len(rows)} rows: " + ", ".join(f"{count} {verdict}" for verdict, count in counts.items() if count)


def merge(sides: Mapping[str, list[list[dict[str, Any]]]]) -> list[NsightRow]:
    """Combine the entries of all turns of both sides to rows."""
    merged: dict[Key, dict[str, Side]] = {}
    for side, turns in sides.items():
        for entry in (entry for turn in turns for entry in turn):
            found = merged.setdefault(tuple(entry["key"]), {"record": Side(), "profile": Side()})[side]
            found.reason = entry.get("reason", "") or found.reason
            if "median" in entry:
                found.medians.append(entry["median"])
                found.samples += entry["samples"]
                found.clocks += [entry["mhz"]] if "mhz" in entry else []
                found.names, found.config = entry["names"], entry.get("config", "")
                found.other_us = entry.get("other_us", 0.0)
    offsets = {
        key[:4]: found["record"].us - found["profile"].us
        for key, found in merged.items()
        if key[4] == EMPTY and found["record"].medians and found["profile"].medians
    }
    return [
        judge(key, found["record"], found["profile"], offsets.get(key[:4], 0.0))
        for key, found in merged.items()
        if key[4] != EMPTY
    ]
