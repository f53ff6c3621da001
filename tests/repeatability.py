"""Whether a second run says what the first one said: two runs of `compare` in fresh processes, row by row.

    python tests/repeatability.py                               # runs `compare --op all` twice into a temporary folder
    python tests/repeatability.py results/a results/b           # two runs that are there; a folder that is not is made
    python tests/repeatability.py results/a results/b --op matmul --out results/nvidia-h200/proof

Compared is vs_best, the suite's claim about a kernel, wherever both runs have it and the call takes 10 us or more.
Lines that are the best of their vendors in both runs have 1 by definition and are left out. It passes when of all rows
at least 95% differ by less than 1%, and none by 3% or more. `python -m suite diff` on the same two runs is counted
as well: of an unchanged tree it should say SAME.
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

LEAST_US = 10.0
CLOSE, CLOSE_SHARE, FAR = 0.01, 0.95, 0.03


@dataclass(frozen=True)
class Line:
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
    """Of vs_best, relative: second over first, less 1."""


def lines(base: Side, new: Side) -> list[Line]:
    """The rows that can be compared, the largest difference first."""
    found = []
    for key, first in base.rows.items():
        second = new.rows.get(key)
        if second is not None and _comparable(first) and _comparable(second) and not _both_best(first, second):
            ratios = float(first.vs_best or 0), float(second.vs_best or 0)
            identity = first.operation, first.case, first.dtype, first.precision, first.implementation
            times = float(first.device_us or 0), float(second.device_us or 0)
            found.append(Line(*identity, *times, *ratios, ratios[1] / ratios[0] - 1))
    return sorted(found, key=lambda line: -abs(line.difference))


def _comparable(row: Row) -> bool:
    return row.status == "ok" and bool(row.vs_best) and (row.device_us or 0) >= LEAST_US


def _both_best(first: Row, second: Row) -> bool:
    return first.vs_best == second.vs_best == 1.0


@dataclass(frozen=True)
class Verdict:
    rows: int
    close: float
    largest: float
    counts: Mapping[str, int]

    @property
    def passed(self) -> bool:
        return self.rows > 0 and self.close >= CLOSE_SHARE and self.largest < FAR

    def __str__(self) -> str:
        verdicts = ", ".join(f"{count} {name}" for name, count in self.counts.items() if count)
        return (
            f"{'passed' if self.passed else 'not passed'}: {self.rows} rows of {LEAST_US:g} us or more, "
            f"{100 * self.close:.1f}% within {100 * CLOSE:g}% (at least {100 * CLOSE_SHARE:g}%), largest difference "
            f"{100 * self.largest:.2f}% (below {100 * FAR:g}%); python -m suite diff: {verdicts}"
        )


def judge(found: Sequence[Line], counts: Mapping[str, int]) -> Verdict:
    sizes = [abs(line.difference) for line in found]
    close = sum(size < CLOSE for size in sizes) / len(sizes) if sizes else 0.0
    return Verdict(len(sizes), close, max(sizes, default=0.0), counts)


HEADS = ("operation", "case", "dtype", "precision", "implementation", "us", "again", "vs best", "again", "difference %")


def cells(line: Line) -> list[str]:
    numbers = (line.first_us, line.second_us, line.first_vs_best, line.second_vs_best)
    return [
        *(line.operation, line.case, line.dtype, line.precision, line.implementation),
        *(number(value, 5) for value in numbers),
        f"{100 * line.difference:+.2f}",
    ]


def to_csv(found: Sequence[Line]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, [each.name for each in fields(Line)], lineterminator="\n")
    writer.writeheader()
    writer.writerows(asdict(line) for line in found)
    return text.getvalue()


def markdown(found: Sequence[Line], verdict: Verdict, environment: Mapping[str, Any]) -> str:
    device = plain(environment.get("device", {}).get("name", "an unknown device"))
    versions = ", ".join(f"{name} {version}" for name, version in environment.get("packages", {}).items())
    command = str(environment.get("command", "")).replace("`", "'")
    return "\n".join(
        [
            f"# Two runs on {device}",
            "",
            f"`{command}`, twice, in fresh processes. Versions: {plain(versions)}. {plain(verdict)}.",
            "",
            pipe_table(list(HEADS), [[plain(cell) for cell in cells(line)] for line in found], right=set(HEADS[5:])),
            "",
        ]
    )


def run(folder: Path, arguments: Sequence[str]) -> None:
    """`compare` into a folder, in a process of its own. Its exit status 1 (some row failed) is not ours to judge."""
    command = [sys.executable, "-m", "suite", "compare", *arguments, "--out", str(folder.resolve())]
    print(" ".join(command), flush=True)
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.DEVNULL, check=False)
    if done.returncode not in (0, 1):
        raise SystemExit(f"compare ended with {done.returncode}")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", type=Path, nargs="*", help="the two runs")
    parser.add_argument("--op", action="append", help="operation; may be repeated; default: all")
    parser.add_argument("--out", type=Path, help="folder of repeatability.csv and .md; default: nothing is kept")
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
    table = lines(found.base, found.new)
    verdict = judge(table, found.counts)
    if options.out is not None:
        write_atomically(options.out / "repeatability.csv", to_csv(table))
        text = markdown(table, verdict, found.new.environment or {})
        write_atomically(options.out / "repeatability.md", text)
    for line in table[: options.show]:
        print("  ".join(cells(line)))
    print(verdict)
    return 0 if verdict.passed else 1


if __name__ == "__main__":
    raise SystemExit(main())
