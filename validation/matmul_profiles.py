"""Profiles the worst products of validation.matmul_lines by Nsight Compute: our best kernel and the vendors'.

    python -m validation.matmul_profiles --read lines/*.csv --out profiles.csv --write docs/lab/matmul.md

The cache is cold, and the clocks are left as they are. Needs ncu, and the permission to read the GPU's counters.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import torch

from suite.profiling import nsight
from suite.profiling.once import profiled
from suite.results.render import pipe_table
from validation import matmul_lines
from validation.matmul_lines import OP, WORST, Timed

BEGIN, END = "<!-- profiles:begin -->", "<!-- profiles:end -->"
SEPARATOR = "spin_kernel"
"""The kernel of torch.cuda._sleep, which separates calls in the profile."""
TIMEOUT_S = 300
HEAD = ("M", "N", "K", "layout", "dtype", "precision", "line", "us", "of_vendor", "kernel", *nsight.SHARES)
HEAD = (*HEAD, "ncu_stall", "bound_by")


def worst(timed: Sequence[Timed], count: int = WORST) -> list[Timed]:
    """Return the cases in which our best implementation is slowest relative to the vendors' fastest."""
    return sorted(timed, key=lambda each: each.best_ratio)[:count]


def run(calls: Sequence[tuple[tuple[int, ...], tuple[str, str, str], str]]) -> None:
    """Make the calls of implementations, each after a separating kernel for the profiler."""
    device, lines = matmul_lines.prepared(sorted({line for *_, line in calls}))
    by_name = {each.name: each for each in lines}
    for shape, (layout, dtype, precision), line in calls:
        case = OP.case(shape, dtype, precision, layout=layout)
        bound = matmul_lines.bound(by_name[line], case, OP.make_inputs(case, 0, device))
        bound.call()
        bound.call()
        with profiled(device):
            bound.call()
            torch.cuda._sleep(1)


def split(kernels: Sequence[nsight.Kernel]) -> list[list[nsight.Kernel]]:
    """Split the kernels into calls."""
    return [list(each) for between, each in groupby(kernels, lambda k: SEPARATOR in k.name) if not between]


def profile(calls: Sequence[tuple[Any, ...]], executable: str) -> list[list[nsight.Kernel]]:
    """Profile the calls in a process under ncu, and return the kernels of each. Raises `nsight.NsightError`."""
    with tempfile.TemporaryDirectory(prefix="suite-ncu-") as folder:
        log = Path(folder, "ncu.csv")
        command = [*nsight.command(executable, log, cold=True), sys.executable, "-m", __spec__.name]
        done = subprocess.run(
            [*command, "--calls", json.dumps(calls)], timeout=TIMEOUT_S, capture_output=True, text=True
        )
        text = log.read_text(errors="replace") if log.exists() else ""
        if done.returncode:
            nsight.refuse(text)
            raise nsight.NsightError(f"the profiled process ended with {done.returncode}: {done.stderr[-600:]}")
    found = split(nsight.kernels(text))
    if len(found) != len(calls):
        raise nsight.NsightError(f"ncu saw {len(found)} calls, expected {len(calls)}")
    return found


def rows(timed: Sequence[Timed], found: Sequence[Sequence[nsight.Kernel]]) -> list[dict[str, Any]]:
    """Return two rows for each product: ours and the vendors' fastest. `found` has their kernels in this order."""
    made = []
    lines = [(each, line) for each in timed for line in (each.best, each.best_vendor)]
    for (each, line), kernels in zip(lines, found, strict=True):
        longest = max(kernels, key=lambda kernel: kernel.us).name
        sizes = {**dict(zip("MNK", (each.M, each.N, each.K), strict=True))}
        kind = dict(zip(("layout", "dtype", "precision"), each.kind, strict=True))
        ratio = f"{each.us[each.best_vendor] / each.us[line]:.3f}"
        columns = nsight.columns(kernels)
        made.append(
            {**sizes, **kind, "line": line, "us": each.us[line], "of_vendor": ratio, "kernel": longest, **columns}
        )
    return made


def table(made: Sequence[dict[str, Any]]) -> str:
    """Format a line for each product: our implementation, and the vendors' fastest after a semicolon."""
    shares = {"tensor": "ncu_tensor", "DRAM": "ncu_dram", "L2": "ncu_l2"}
    head = ["M x N x K", "line; vendor", "us", "of the vendor", *shares, "bound by"]
    body = []
    for pair in zip(made[::2], made[1::2], strict=True):
        ours, _ = pair
        both = [
            [row["line"], f"{float(row['us']):.1f}", *(share(row[each]) for each in shares.values())] for row in pair
        ]
        names, times, *busy = ("; ".join(cells) for cells in zip(*both, strict=True))
        bounds = "; ".join(dict.fromkeys(str(row["bound_by"]) for row in pair))
        body.append([f"{ours['M']} x {ours['N']} x {ours['K']}", names, times, ours["of_vendor"], *busy, bounds])
    return pipe_table(head, body, {*head[2:-1]})


def share(value: Any) -> str:
    return "" if value in (None, "") else f"{float(value):.0%}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--read", type=Path, nargs="+", default=[], help="tables of validation.matmul_lines")
    parser.add_argument("--count", type=int, default=WORST, help=f"products ({WORST})")
    parser.add_argument("--out", type=Path, default=Path("profiles.csv"), help="CSV file to write (profiles.csv)")
    parser.add_argument("--write", type=Path, help="write the table between the marks of this document")
    parser.add_argument("--calls", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.calls:
        run([(tuple(shape), tuple(kind), line) for shape, kind, line in json.loads(given.calls)])
        return 0
    executable = nsight.ncu()
    if executable is None:
        print(f"ncu is missing: {nsight.INSTALL_HINT}", file=sys.stderr)
        return 1
    timed = worst([each for path in given.read for each in matmul_lines.read(path)], given.count)
    calls = [((each.M, each.N, each.K), each.kind, line) for each in timed for line in (each.best, each.best_vendor)]
    try:
        made = rows(timed, profile(calls, executable))
    except nsight.NsightError as error:
        print(error, file=sys.stderr)
        return 1
    with given.out.open("w", newline="") as file:
        writer = csv.DictWriter(file, HEAD, lineterminator=os.linesep)
        writer.writeheader()
        writer.writerows(made)
    text = table(made)
    print(text)
    if given.write:
        before, _, rest = given.write.read_text().partition(BEGIN)
        given.write.write_text(f"{before}{BEGIN}\n{text}\n{END}{rest.partition(END)[2]}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
