"""Judges folders of kernels, each by a plain `compare` without times, and prints the verdict of each file.

    python -m validation.verdicts FOLDER                    # a line for each file, and a count
    python -m validation.verdicts FOLDER --expect wrong     # exit status 1 unless every file is wrong in some row

A kernel's file is given by `--with`, for the operations that it defines. NAME_ref.py is the `--reference`, and a file
with `get_inputs` the `--kernelbench`, for the files whose names begin with its own. A reference or problem without such
files is judged by its implementation `torch`. Files of one operation share a run.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT)]

from suite import ops  # noqa: E402
from suite.external import source  # noqa: E402
from suite.results.csv_file import read_rows  # noqa: E402
from suite.results.row import Row, Status  # noqa: E402

REASON = 150
"""Characters of a reason that are shown."""


@dataclass
class Run:
    """One run of `compare`: what it compares, such as `--op sum`, and the files that are brought to it."""

    what: tuple[str, ...]
    files: list[Path] = field(default_factory=list)

    @property
    def lines(self) -> dict[str, str]:
        """The name that is printed for each implementation to be judged."""
        return {source.PREFIX + each.stem: each.name for each in self.files} or {"torch": Path(self.what[1]).name}

    def command(self, out: str, device: str) -> list[str]:
        more = [text for each in self.files for text in ("--with", str(each))]
        more += ["--impl", "torch"] if self.what[0] == "--op" else []
        more += ["--device", device] if device else []
        return [sys.executable, "-m", "suite", "compare", *self.what, *more, "--no-time", "--out", out]


def runs_of(folder: Path) -> list[Run]:
    """Return the runs that judge the files of a folder, its own problems first."""
    files = {each: source.read(each) for each in sorted(folder.iterdir()) if each.suffix in source.SUFFIXES}
    problems: dict[str, Run] = {}
    for path, found in files.items():
        if path.stem.endswith("_ref"):
            problems[path.stem.removesuffix("_ref")] = Run(("--reference", str(path)))
        elif "get_inputs" in found.lines:
            problems[path.stem] = Run(("--kernelbench", str(path)))
    operations: dict[str, Run] = {}
    for path, found in files.items():
        if str(path) in (run.what[1] for run in problems.values()):
            continue
        if owners := [name for name in problems if path.stem.startswith(f"{name}_")]:
            problems[max(owners, key=len)].files.append(path)
        for name in () if owners else (each for each in found.shown if each in ops.names()):
            operations.setdefault(name, Run(("--op", name))).files.append(path)
    return [*problems.values(), *operations.values()]


def verdicts(run: Run, device: str) -> Iterator[tuple[str, str, str]]:
    """Yield each file of a run, its statuses in all rows, and the reason of the first row that is not ok, or its note.

    A run that `compare` refuses has the status `refused`.
    """
    with TemporaryDirectory() as out:
        done = subprocess.run(run.command(out, device), cwd=ROOT, capture_output=True, text=True, check=False)
        rows = [row for each in Path(out).glob("*.csv") for row in read_rows(each)]
    for line, name in run.lines.items():
        own = [row for row in rows if row.implementation == line]
        if own:
            yield name, ", ".join(dict.fromkeys(row.status for row in own)), _reason(own)
        else:
            yield name, "refused", " ".join(done.stderr.split())


def _reason(rows: Sequence[Row]) -> str:
    first = next((row for row in rows if row.status != Status.OK), rows[0])
    return " ".join((first.explanation or first.weakness or first.remarks).split())


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="+")
    parser.add_argument("--expect", choices=[*Status, "refused"], help="fail unless every file has it in some row")
    parser.add_argument("--device", default="", help="where the kernels run; default: the device of `compare`")
    options = parser.parse_args(arguments)
    counts: Counter[str] = Counter()
    unexpected = 0
    for folder in options.folder:
        for run in runs_of(folder.resolve()):
            for name, statuses, reason in verdicts(run, options.device):
                counts[statuses] += 1
                unexpected += bool(options.expect) and options.expect not in statuses.split(", ")
                print(f"{name}  {statuses}  {reason[:REASON]}".rstrip(), flush=True)
    print("; ".join(f"{count} {statuses}" for statuses, count in counts.most_common()))
    return 1 if unexpected else 0


if __name__ == "__main__":
    raise SystemExit(main())
