"""Measures repeatability: compares two runs of `compare` in fresh processes row by row.

    python validation/repeatability.py                               # run `compare --op all` twice
    python validation/repeatability.py results/a results/b           # two runs; makes those that do not exist
    python validation/repeatability.py results/a results/b --op matmul --out results/nvidia-h200/proof

Compares vs_best of all rows of 10 us or more that have it in both runs, except rows of the fastest vendor
implementation, which is 1 by definition. Passes if at least 95% of these rows differ by less than 1% and none by 3% or
more. The verdicts of `python -m suite diff` on the two runs are counted as well; they should be SAME.

Exit status: 0 if it passes, 1 if not, 2 if the folders cannot be compared.
"""

from __future__ import annotations

import argparse
import csv
import io
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from suite.core.errors import SuiteError  # noqa: E402
from suite.core.files import write_atomically  # noqa: E402
from suite.diff import judge as diff  # noqa: E402
from suite.diff.load import Side, load  # noqa: E402
from suite.results.render import number, pipe_table, plain  # noqa: E402
from suite.results.row import Row  # noqa: E402

MIN_US = 10.0
"""Shorter calls are left out."""
CLOSE, CLOSE_SHARE, FAR = 0.01, 0.95, 0.03
"""At least CLOSE_SHARE of the rows must differ by less than CLOSE, and none by FAR."""


@dataclass(frozen=True)
class Pair:
    """One row of both runs."""

    operation: str
    case: str
    dtype: str
    precision: str
    implementation: str
    first_us: float
    second_us: float
    first_vs_best: float
    second_vs_best: float
    difference: float
    """Relative difference of vs_best: second over first, minus 1."""


def pairs(base: Side, new: Side) -> list[Pair]:
    """Return the rows that can be compared, the largest difference first."""
    found = []
    for key, first in base.rows.items():
        second = new.rows.get(key)
        if second is not None and _comparable(first) and _comparable(second) and not _both_best(first, second):
            ratios = float(first.vs_best or 0), float(second.vs_best or 0)
            identity = first.operation, first.case, first.dtype, first.precision, first.implementation
            times = float(first.device_us or 0), float(second.device_us or 0)
            found.append(Pair(*identity, *times, *ratios, ratios[1] / ratios[0] - 1))
    return sorted(found, key=lambda pair: -abs(pair.difference))


def _comparable(row: Row) -> bool:
    return row.status == "ok" and bool(row.vs_best) and (row.device_us or 0) >= MIN_US


def _both_best(first: Row, second: Row) -> bool:
    return first.vs_best == second.vs_best == 1.0


@dataclass(frozen=True)
class Verdict:
    """The result over all pairs."""

    rows: int
    close: float
    """Share of the rows that differ by less than CLOSE."""
    largest: float
    """Largest difference."""
    counts: Mapping[str, int]
    """Number of rows of each verdict of `diff`."""

    @property
    def passed(self) -> bool:
        return self.rows > 0 and self.close >= CLOSE_SHARE and self.largest < FAR

    def __str__(self) -> str:
        verdicts = ", ".join(f"{count} {name}" for name, count in self.counts.items() if count)
        return (
            f"{'passed' if self.passed else 'not passed'}: {self.rows} rows of {MIN_US:g} us or more, "
            f"{100 * self.close:.1f}% within {100 * CLOSE:g}% (at least {100 * CLOSE_SHARE:g}%), largest difference "
            f"{100 * self.largest:.2f}% (below {100 * FAR:g}%); python -m suite diff: {verdicts}"
        )


def judge(found: Sequence[Pair], counts: Mapping[str, int]) -> Verdict:
    sizes = [abs(pair.difference) for pair in found]
    close = sum(size < CLOSE for size in sizes) / len(sizes) if sizes else 0.0
    return Verdict(len(sizes), close, max(sizes, default=0.0), counts)


HEADS = ("operation", "case", "dtype", "precision", "implementation", "us", "again", "vs best", "again", "difference %")


def cells(pair: Pair) -> list[str]:
    """Return the cells of a pair, in the order of HEADS."""
    numbers = (pair.first_us, pair.second_us, pair.first_vs_best, pair.second_vs_best)
    return [
        *(pair.operation, pair.case, pair.dtype, pair.precision, pair.implementation),
        *(number(value, 5) for value in numbers),
        f"{100 * pair.difference:+.2f}",
    ]


def to_csv(found: Sequence[Pair]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, [each.name for each in fields(Pair)], lineterminator="\n")
    writer.writeheader()
    writer.writerows(asdict(pair) for pair in found)
    return text.getvalue()


def markdown(found: Sequence[Pair], verdict: Verdict, environment: Mapping[str, Any]) -> str:
    device = plain(environment.get("device", {}).get("name", "an unknown device"))
    versions = ", ".join(f"{name} {version}" for name, version in environment.get("packages", {}).items())
    command = str(environment.get("command", "")).replace("`", "'")
    return "\n".join(
        [
            f"# Two runs on {device}",
            "",
            f"`{command}`, twice, in fresh processes. Versions: {plain(versions)}. {plain(verdict)}.",
            "",
            pipe_table(list(HEADS), [[plain(cell) for cell in cells(pair)] for pair in found], right=set(HEADS[5:])),
            "",
        ]
    )


def run(folder: Path, arguments: Sequence[str]) -> None:
    """Run `compare` into a folder, in a new process. Raises `SystemExit` if its exit status is not 0 or 1."""
    command = [sys.executable, "-m", "suite", "compare", *arguments, "--out", str(folder.resolve())]
    print(" ".join(command), flush=True)
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.DEVNULL, check=False)
    if done.returncode not in (0, 1):
        raise SystemExit(f"compare ended with {done.returncode}")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", type=Path, nargs="*", help="the two runs")
    parser.add_argument("--op", action="append", help="operation; may be repeated; default: all")
    parser.add_argument("--out", type=Path, help="folder of repeatability.csv and .md; default: no files are written")
    parser.add_argument("--show", type=int, default=15, help="how many rows to print, the worst first")
    options = parser.parse_args(arguments)
    if len(options.folders) not in (0, 2):
        parser.error("give two folders, or none")
    wanted = [word for name in options.op or ["all"] for word in ("--op", name)]
    with tempfile.TemporaryDirectory(prefix="suite-repeatability-") as temporary:
        folders = options.folders or [Path(temporary, "first"), Path(temporary, "second")]
        for folder in folders:
            if not any(folder.glob("*.csv")):
                run(folder, wanted)
        try:
            found = diff.judge(*map(load, folders))
        except SuiteError as error:
            print(f"error: {error}", file=sys.stderr)
            return 2
    table = pairs(found.base, found.new)
    verdict = judge(table, found.counts)
    if options.out is not None:
        write_atomically(options.out / "repeatability.csv", to_csv(table))
        text = markdown(table, verdict, found.new.environment or {})
        write_atomically(options.out / "repeatability.md", text)
    for pair in table[: options.show]:
        print("  ".join(cells(pair)))
    print(verdict)
    return 0 if verdict.passed else 1


if __name__ == "__main__":
    raise SystemExit(main())
