"""Measures the rate of false verdicts of `diff`: compares repeated runs of the same code in all pairs.

    python validation/a_a_rates.py --runs 5 --op sigmoid --op vector_add       # makes 5 runs in a temporary folder
    python validation/a_a_rates.py results/a results/b results/c               # makes the runs that do not exist
    python validation/a_a_rates.py runs/1 runs/2 runs/3 --out results/nvidia-h200/proof -- --op all --repeat 3

Arguments after `--` are those of `compare`. R runs give R (R - 1) / 2 pairs. The pairs are not independent: each run is
in R - 1 of them, so one odd run counts R - 1 times. FASTER, SLOWER, BROKEN and FIXED are false verdicts; AMBIGUOUS,
SAME and UNTIMED are not counted. Passes if at most 1 in 1,000 rows of all pairs has a false verdict.

Exit status: 0 if it passes, 1 if not, 2 if the folders cannot be compared.
"""

from __future__ import annotations

import argparse
import csv
import io
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from itertools import combinations
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from suite.core.errors import SuiteError  # noqa: E402
from suite.core.files import write_atomically  # noqa: E402
from suite.diff.change import Change, Diff, Verdict, case_name  # noqa: E402
from suite.diff.interval import as_ratio  # noqa: E402
from suite.diff.judge import THRESHOLD, judge  # noqa: E402
from suite.diff.load import Side, load  # noqa: E402
from suite.results.render import number, pipe_table, plain  # noqa: E402

FALSE_VERDICTS = (Verdict.FASTER, Verdict.SLOWER, Verdict.BROKEN, Verdict.FIXED)
MAX_FALSE_SHARE = 1e-3
"""Largest share of rows with a false verdict."""


@dataclass(frozen=True)
class Line:
    """One row of one pair of runs that is not SAME."""

    base: str
    new: str
    verdict: str
    case: str
    implementation: str
    base_us: float | None
    new_us: float | None
    ratio: float | None
    notes: str


@dataclass(frozen=True)
class Rates:
    """The verdicts of all pairs."""

    runs: int
    pairs: int
    counts: Mapping[Verdict, int]
    threshold: float

    @property
    def judged(self) -> int:
        """Number of rows of all pairs that have a verdict on times, or are broken or fixed."""
        return sum(count for verdict, count in self.counts.items() if verdict is not Verdict.UNTIMED)

    @property
    def false(self) -> int:
        return sum(self.counts.get(verdict, 0) for verdict in FALSE_VERDICTS)

    @property
    def passed(self) -> bool:
        return self.judged > 0 and self.false <= MAX_FALSE_SHARE * self.judged

    def __str__(self) -> str:
        verdicts = ", ".join(f"{self.counts[verdict]} {verdict}" for verdict in Verdict if self.counts.get(verdict))
        return (
            f"{'passed' if self.passed else 'not passed'}: {self.false} false verdicts on {self.judged} rows of "
            f"{self.pairs} pairs of {self.runs} runs of the same code (at most 1 in {1 / MAX_FALSE_SHARE:,.0f}); "
            f"{verdicts}; threshold {100 * self.threshold:g}%"
        )


def compare_all(sides: Sequence[Side], threshold: float) -> tuple[Rates, list[Line]]:
    """Compare all pairs of `sides`, runs of the same code. Raises `UsageError` for runs that cannot be compared."""
    counts: Counter[Verdict] = Counter()
    lines: list[Line] = []
    pairs = list(combinations(sides, 2))
    for base, new in pairs:
        found = judge(base, new, threshold)
        counts.update(change.verdict for change in found.changes)
        lines += _lines(found)
    order = list(Verdict)
    lines.sort(key=lambda line: (order.index(Verdict(line.verdict)), -abs((line.ratio or 1.0) - 1)))
    return Rates(len(sides), len(pairs), counts, threshold), lines


def _lines(found: Diff) -> Iterator[Line]:
    for change in found.changes:
        if change.verdict not in (Verdict.SAME, Verdict.UNTIMED):
            yield _line(found, change)


def _line(found: Diff, change: Change) -> Line:
    ratio = None if change.ratio is None else as_ratio(change.ratio.value)
    return Line(
        found.base.path.name,
        found.new.path.name,
        str(change.verdict),
        case_name(change.base),
        found.name(change.base),
        change.base.device_us,
        change.new.device_us,
        ratio,
        "; ".join(change.notes),
    )


def to_csv(lines: Sequence[Line]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, [each.name for each in fields(Line)], lineterminator="\n")
    writer.writeheader()
    writer.writerows(asdict(line) for line in lines)
    return text.getvalue()


HEADS = ("base", "new", "verdict", "ratio", "base us", "new us", "case", "implementation", "notes")


def cells(line: Line) -> list[str]:
    """Return the cells of a line, in the order of HEADS."""
    numbers = [number(value, 4) for value in (line.ratio, line.base_us, line.new_us)]
    return [line.base, line.new, line.verdict, *numbers, line.case, line.implementation, line.notes]


def markdown(rates: Rates, lines: Sequence[Line], environment: Mapping[str, Any]) -> str:
    device = plain(environment.get("device", {}).get("name", "an unknown device"))
    versions = ", ".join(f"{name} {version}" for name, version in environment.get("packages", {}).items())
    command = str(environment.get("command", "")).replace("`", "'")
    body = [[plain(cell) for cell in cells(line)] for line in lines]
    table = pipe_table(list(HEADS), body, right=set(HEADS[3:6])) if body else "Every row of every pair is SAME."
    return "\n".join(
        [
            f"# Runs of the same code on {device}",
            "",
            f"`{command}`, {rates.runs} times, in fresh processes. Versions: {plain(versions)}. {plain(rates)}.",
            "The pairs are not independent: each run is in several. Rows that are not SAME:",
            "",
            table,
            "",
        ]
    )


def run(folder: Path, arguments: Sequence[str]) -> None:
    """Run `compare` into a folder, in a new process. Raises `SystemExit` if it writes no table."""
    command = [sys.executable, "-m", "suite", "compare", *arguments, "--out", str(folder.resolve())]
    print(" ".join(command), flush=True)
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode not in (0, 1) or not any(folder.glob("*.csv")):
        raise SystemExit(f"compare ended with {done.returncode}: {done.stderr.strip()[-500:]}")


def options_of(arguments: Sequence[str] | None) -> tuple[argparse.Namespace, list[str]]:
    """Parse the options, and separate the arguments of `compare`."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", type=Path, nargs="*", help="the runs, at least two")
    parser.add_argument("--runs", type=int, help="number of runs to make, in a temporary folder")
    parser.add_argument("--op", action="append", help="operation of the runs to make; may be repeated; default: all")
    parser.add_argument("--threshold", type=float, default=THRESHOLD, help="that of diff")
    parser.add_argument("--out", type=Path, help="folder of a_a_rates.csv and .md; default: no files are written")
    parser.add_argument("--show", type=int, default=15, help="how many rows to print, the worst first")
    given = list(sys.argv[1:] if arguments is None else arguments)
    place = given.index("--") if "--" in given else len(given)
    options, of_compare = parser.parse_args(given[:place]), given[place + 1 :]
    if bool(options.folders) == bool(options.runs) or max(len(options.folders), options.runs or 0) < 2:
        parser.error("give two folders or more, or --runs with a number from 2 on")
    if not of_compare or options.op:
        of_compare += [word for name in options.op or ["all"] for word in ("--op", name)]
    return options, of_compare


def main(arguments: Sequence[str] | None = None) -> int:
    options, of_compare = options_of(arguments)
    with tempfile.TemporaryDirectory(prefix="suite-a-a-") as temporary:
        folders = options.folders or [Path(temporary, str(number + 1)) for number in range(options.runs)]
        for folder in folders:
            if not any(folder.glob("*.csv")):
                run(folder, of_compare)
        try:
            sides = [load(folder) for folder in folders]
            rates, lines = compare_all(sides, options.threshold)
        except SuiteError as error:
            print(f"error: {error}", file=sys.stderr)
            return 2
    if options.out is not None:
        write_atomically(options.out / "a_a_rates.csv", to_csv(lines))
        write_atomically(options.out / "a_a_rates.md", markdown(rates, lines, sides[-1].environment or {}))
    for line in lines[: options.show]:
        print("  ".join(cells(line)))
    print(rates)
    return 0 if rates.passed else 1


if __name__ == "__main__":
    raise SystemExit(main())
