"""Runs the CUDA kernels under compute-sanitizer: accesses out of bounds, races, uninitialized reads, misused barriers.

    python validation/sanitize.py                                     # all four tools over every CUDA implementation
    python validation/sanitize.py --tool racecheck --op matmul --impl cuda/tiled --out results/nvidia-h200/proof

Each tool runs over each operation in a process of its own. The process calls every implementation once for each ragged
size (and those of FURTHER), dtype, precision, layout and mask. The same calls are made without a tool first, which
builds the libraries. Memory comes from cudaMalloc without torch's cache (PYTORCH_NO_CUDA_MEMORY_CACHING), so that an
access past an array is also past its allocation. A row passes if compute-sanitizer counts no error. A process that
dies, does not finish in time or makes no call does not pass. The output of a row that does not pass is kept as
TOOL-OPERATION.txt.

A tool may report errors in right programs, as a probe shows (sanitizer/limits.py). The kernel is then left out, or
built in an order that the tool follows, and the note of the row says so.

Exit status: 0 if all rows pass, 1 if not, 2 without compute-sanitizer.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from suite import hardware, ops  # noqa: E402
from suite.core.files import write_atomically  # noqa: E402
from suite.hardware.device import resolve  # noqa: E402
from suite.implementations import builtin  # noqa: E402
from suite.problem.case import Case  # noqa: E402
from suite.problem.shape import Shape  # noqa: E402
from suite.results.render import pipe_table, plain  # noqa: E402
from validation.sanitizer.limits import SUMMARY, Known, known_of, left_out  # noqa: E402

TOOLS = {
    "memcheck": "accesses out of bounds or misaligned, leaks on the device",
    "racecheck": "accesses of shared memory by several threads without a barrier between",
    "initcheck": "reads of device memory that was never written",
    "synccheck": "barriers that not all threads reach",
}
FURTHER: dict[str, tuple[Shape, ...]] = {
    "attention_grad": ((1, 8, 1, 130, 300, 64),),
    "int4_matmul": ((17, 264, 640), (32, 200, 1024)),
    "linear_sigmoid": ((300, 264, 72), (16, 128, 2048)),
    "linear_sigmoid_grad": ((300, 264, 72),),
    "matmul": (
        (17674, 8, 28),
        (12159, 8, 512),
        (10809, 8, 992),
        (149, 2080, 4621),
        (864, 744, 4464),
        (3, 5, 3000),
        (5, 300, 1040),
        (300, 16, 512),
    ),
    "lstm": ((2, 33, 9, 136), (2, 230, 9, 264), (1, 6, 9, 520)),
}
"""Sizes besides the ragged ones, for kernels that are chosen by size: few columns, tiles that fit the output, larger
tiles, clusters of 8 and 16 blocks, and several blocks for the query heads of one key head."""
CALLED = "calls made: "
"""The child process prints this, followed by the number of calls."""
KEPT = 20_000
"""Kept characters of the output of a row that does not pass."""


@dataclass(frozen=True)
class SanitizerRow:
    """One tool over one operation."""

    tool: str
    operation: str
    implementations: str
    calls: int
    """Calls made."""
    errors: int | None
    """None if the tool did not count them."""
    note: str = ""

    @property
    def passed(self) -> bool:
        return self.errors == 0 and self.calls > 0


def cases(operation: str) -> list[Case]:
    """Return every size in every dtype and precision, with every layout and mask of the operation."""
    op = ops.get(operation)
    return [
        op.case(shape, dtype, precision, **options)
        for shape in (*op.ragged, *FURTHER.get(operation, ()))
        for dtype in (*op.dtypes, *op.dtypes_beyond)
        for precision in op.precisions(dtype)
        for options in op.option_combinations(
            dtype, {option.name: option.values for option in op.options if not option.beyond}
        )
    ]


def build_changed(tool: str, operation: str, folder: Path) -> None:
    """Build changed sources, written to `folder`, in place of the originals in this process."""
    from cuda_ref import build

    paths = {known.source: known.changed(folder) for known in known_of(tool, operation) if known.source}
    launch = build.launch
    build.launch = lambda source, *rest: launch(paths.get(source, source), *rest)


def call_all(operation: str, patterns: Sequence[str]) -> None:
    """Call all implementations on all cases: the program that runs under the sanitizer."""
    import torch

    made = 0
    device = resolve("cuda:0")
    op = ops.get(operation)
    for implementation in chosen(operation, patterns):
        obstacle = implementation.obstacle(device)
        if obstacle is not None:
            print(f"{implementation.name}: {': '.join(obstacle)}")
            continue
        function = getattr(implementation.load(), operation)
        for case in cases(operation):
            if case.dtype not in (*op.dtypes, *implementation.dtypes_beyond):
                continue
            inputs = op.make_inputs(case, 0, torch.device("cuda", 0))
            try:
                function(*inputs, **op.arguments(case))
            except NotImplementedError:
                continue
            made += 1
        torch.cuda.synchronize()
    print(f"{CALLED}{made}", flush=True)


def chosen(operation: str, patterns: Sequence[str]) -> list[builtin.Implementation]:
    """Return the implementations of an operation whose names match one of the patterns."""
    found = builtin.implementations(operation)
    return [each for each in found if any(fnmatchcase(each.name, pattern) for pattern in patterns)]


def judge(tool: str, operation: str, names: Sequence[str], output: str, ended: int | None) -> SanitizerRow:
    """Return the row for a tool's output. ended: the exit status; None after a time-out."""
    counts = [int(count) for count in SUMMARY.findall(output)]
    called = re.search(rf"{CALLED}(\d+)", output)
    complaints = [
        line.removeprefix("=========").strip() for line in output.splitlines() if line.startswith("=========")
    ]
    first = next((text for text in complaints if re.search(r"Invalid|Race|Hazard|Uninit|Barrier|Error", text)), "")
    note = first[:300] if counts and counts[-1] else ""
    if ended is None:
        note = "not finished in the time given"
    elif not counts or called is None:
        note = f"ended with {ended}: {' '.join(output.splitlines()[-3:])[:300]}"
    errors = counts[-1] if counts and called is not None and ended is not None else None
    return SanitizerRow(tool, operation, ", ".join(names), int(called[1]) if called else 0, errors, note)


def build_first(operation: str, names: Sequence[str], timeout_s: float) -> None:
    """Make the calls without a tool. A failure here repeats under the tools, whose rows report it."""
    with suppress(subprocess.TimeoutExpired):
        subprocess.run(
            program(operation, names), capture_output=True, timeout=timeout_s, env=environment(), check=False
        )


def program(operation: str, names: Sequence[str]) -> list[str]:
    """Return the command that makes the calls."""
    patterns = [word for name in names for word in ("--impl", name)]
    return [sys.executable, str(Path(__file__).resolve()), "--child", operation, *patterns]


def environment() -> dict[str, str]:
    """Return the environment of the processes that make the calls."""
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    return {**os.environ, "PYTORCH_NO_CUDA_MEMORY_CACHING": "1", "PYTHONPATH": path}


def run(tool: str, operation: str, names: Sequence[str], timeout_s: float, out: Path) -> SanitizerRow:
    """Run one tool over one operation in a process of its own."""
    executable = sanitizer() or "compute-sanitizer"
    known = left_out(tool, operation, executable)
    kernels = [kernel for each in known for kernel in each.kernels]
    exclusions = [word for each in kernels for word in ("--kernel-name-exclude", f"kernel_substring={each}")]
    changed = ["--changed-for", tool] if any(each.replaced for each in known) else []
    command = [executable, "--tool", tool, "--print-limit", "5", *exclusions, *program(operation, names), *changed]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=timeout_s, env=environment(), check=False
        )
        output, ended = done.stdout + done.stderr, done.returncode
    except subprocess.TimeoutExpired as stopped:
        output, ended = "".join(_text(each) for each in (stopped.stdout, stopped.stderr)), None
    row = judge(tool, operation, names, output, ended)
    if not row.passed:
        write_atomically(out / f"{tool}-{operation}.txt", output[-KEPT:])
    return replace(row, note="; ".join(filter(None, [row.note, *map(Known.note, known)])))


def _text(output: bytes | str | None) -> str:
    """Decode the output of a stopped process, which is bytes in any case."""
    return output.decode(errors="replace") if isinstance(output, bytes) else output or ""


def sanitizer() -> str | None:
    """Find compute-sanitizer on PATH or in /usr/local/cuda; None if there is none."""
    toolkit = "/usr/local/cuda/bin/compute-sanitizer"
    return shutil.which("compute-sanitizer") or (toolkit if os.access(toolkit, os.X_OK) else None)


def summary(rows: Sequence[SanitizerRow]) -> str:
    """Count rows, clean rows and calls in a sentence."""
    return f"{len(rows)} rows: {sum(row.passed for row in rows)} clean, {sum(row.calls for row in rows)} calls"


def markdown(rows: Sequence[SanitizerRow], environment: dict[str, Any], version: str) -> str:
    """Format `sanitizer.md`."""
    heads = ["tool", "operation", "implementations", "calls", "errors", "note"]
    body = [
        [plain(str("?" if value is None else value)) for value in (getattr(row, head) for head in heads)]
        for row in rows
    ]
    return "\n".join(
        [
            f"# The CUDA kernels under compute-sanitizer on {plain(environment['device']['name'])}",
            "",
            f"Command: `{environment['command']}`. {plain(version)}. {summary(rows)}. "
            + " ".join(f"{tool}: {what}." for tool, what in TOOLS.items()),
            "",
            pipe_table(heads, body, right={"calls", "errors"}),
            "",
        ]
    )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tool", action="append", choices=list(TOOLS), help="may be repeated; default: all")
    parser.add_argument("--op", action="append", choices=ops.alone(), help="may be repeated; default: all")
    parser.add_argument("--impl", action="append", help="patterns of implementations; default: cuda,cuda/*")
    parser.add_argument("--jobs", type=int, default=1, help="tools that run at the same time")
    parser.add_argument("--timeout", type=float, default=120.0, help="seconds for one tool over one operation")
    parser.add_argument("--out", type=Path, help="folder of sanitizer.json and .md; default results/<device>/proof")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--changed-for", default="", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    patterns = [pattern for each in options.impl or ["cuda,cuda/*"] for pattern in each.split(",")]
    if options.child:
        with tempfile.TemporaryDirectory() as folder:
            build_changed(options.changed_for, options.child, Path(folder))
            call_all(options.child, patterns)
        return 0
    names = {name: [each.name for each in chosen(name, patterns)] for name in options.op or ops.alone()}
    names = {name: found for name, found in names.items() if found}
    if not names:
        parser.error(f"--impl {','.join(patterns)}: no implementation of these operations has such a name")
    executable = sanitizer()
    if executable is None:
        print("compute-sanitizer is not on PATH; it comes with the CUDA toolkit", file=sys.stderr)
        return 2
    version = subprocess.run([executable, "--version"], capture_output=True, text=True, check=False).stdout
    version = next((line for line in version.splitlines() if "Version" in line), "compute-sanitizer")
    record = hardware.environment_record("cuda", 0)
    out = options.out or resolve("cuda:0").results_folder / "proof"
    rows: list[SanitizerRow] = []
    with ThreadPoolExecutor(options.jobs) as executor:
        list(executor.map(lambda operation: build_first(operation, names[operation], options.timeout), names))
        waiting = [
            executor.submit(run, tool, operation, names[operation], options.timeout, out)
            for operation in names
            for tool in options.tool or TOOLS
        ]
        for future in waiting:
            row = future.result()
            rows.append(row)
            print(f"{'ok ' if row.passed else 'OFF'} {row.tool} {row.operation}: {row.errors} errors in "
                  f"{row.calls} calls of {row.implementations} {row.note}", flush=True)  # fmt: skip
            write_atomically(out / "sanitizer.json", json.dumps([asdict(each) for each in rows], indent=2) + "\n")
            write_atomically(out / "sanitizer.md", markdown(rows, record, version))
    print(f"{summary(rows)}; written to {out}")
    return 0 if all(row.passed for row in rows) else 1


if __name__ == "__main__":
    raise SystemExit(main())
