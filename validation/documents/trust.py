"""docs/trust.md: the counts of the committed proofs of an H200."""

from __future__ import annotations

import csv
import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from validation.documents import ROOT
from validation.documents.rows import H200
from validation.documents.tables import with_sentences

PROOF = H200 / "proof"
PAGE = ROOT / "docs" / "trust.md"
CLOSE = 0.01
"""Difference of two runs that a row should stay within."""
RECORDED = "the wall time of a sample of a spin of 100 us, recorded"


def table(name: str) -> list[dict[str, str]]:
    with (PROOF / f"{name}.csv").open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def said(path: Path, pattern: str) -> list[str]:
    """The numbers in the sentence of a proof's page."""
    found = re.search(pattern, path.read_text(encoding="utf-8"))
    return list(found.groups()) if found else [""]


def recording() -> list[str]:
    """The cost of recording in per cent, and the two wall times."""
    (row,) = (each for each in table("timer") if each["work"] == RECORDED)
    recorded, plain = float(row["recorded_us"]), float(row["expected_us"])
    return [f"{100.0 * (recorded / plain - 1.0):.1f}", f"{recorded:.1f}", f"{plain:.1f}"]


def sanitized() -> Counter[str]:
    """The calls under compute-sanitizer, by operation."""
    calls: Counter[str] = Counter()
    for path in PROOF.glob("sanitizer*/sanitizer.json"):
        for row in json.loads(path.read_text(encoding="utf-8")):
            calls[row["operation"]] += row["calls"]
    for row in json.loads((PROOF / "sanitizer.json").read_text(encoding="utf-8")):
        calls[row["operation"]] += row["calls"]
    return calls


def sentences() -> Iterator[tuple[str, Sequence[str]]]:
    timer, nsight = table("timer"), table("nsight")
    works = [str(sum(row["verdict"] == "ok" for row in timer)), str(len(timer))]
    yield r"yes, for (\d+) of (\d+) kinds of work", works
    lines = [str(sum(row["verdict"] == "ok" for row in nsight)), str(len(nsight))]
    yield r"(\d+) of (\d+) implementations within 1%", lines
    apart = [abs(float(row["difference"])) for row in table("repeatability")]
    within = f"{100.0 * sum(each < CLOSE for each in apart) / len(apart):.1f}"
    yield (
        r"within 1% for ([\d.]+)% of (\d+) rows of at least 10 us, within ([\d.]+)% for all",
        [within, str(len(apart)), f"{100.0 * max(apart):.2f}"],
    )
    unchanged = said(
        PROOF / "a_a_rates.md", r"(\d+) false verdicts on (\d+) rows of (\d+) pairs of .*; (\d+) AMBIGUOUS, (\d+) SAME"
    )
    false, rows, pairs, ambiguous, same = unchanged
    yield (
        r"(\d+) false verdicts in (\d+) rows of (\d+) pairs of runs: (\d+) SAME, (\d+) AMBIGUOUS",
        [false, rows, pairs, same, ambiguous],
    )
    yield r"([\d.]+)% of the wall time of a sample of 100 us: ([\d.]+) instead of ([\d.]+) us", recording()
    calls = sanitized()
    yield r"one race, repaired since, in ([\d,]+) calls", [f"{calls.total():,}"]
    yield r"most calls \(([\d,]+)\) for matmul", [f"{calls['matmul']:,}"]
    count, largest = said(
        PROOF / "error_ratios" / "README.md", r"(\d+) results of right kernels, largest ratio ([\d.]+)"
    )
    yield r"the largest error of ([\d,]+) results is ([\d.]+) of its bound", [f"{int(count):,}", largest]


def filled(text: str) -> str:
    """Return the page with the numbers of the proofs."""
    return with_sentences(text, sentences())
