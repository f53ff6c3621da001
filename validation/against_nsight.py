"""Compares the suite's recorder with Nsight Compute, an independent one: the same calls on the same device.

    python validation/against_nsight.py          # the largest default case of every operation in bfloat16
    python validation/against_nsight.py --op matmul --impl torch --impl triton --out results/nvidia-h200/proof

Each side runs in its own process, since CUPTI has one subscriber a process. Both draw the inputs, warm up, and call the
implementations in shuffled rounds. Before each call the suite evicts the cache. Both sides make one call every
--period-ms, because the power cap slows a matmul that runs every other millisecond, but not one that runs ten times a
second, the most that Nsight Compute's overhead allows. The sides take turns, --blocks times each. The table shows the
median of every block, so that drift is visible.

Nsight Compute collects one metric, `gpu__time_duration`, in one pass, without its clock control and without its own
flush of the caches, which would flush between the kernels of one call. It profiles kernels only, so the time of copies
and fills is subtracted from the suite's number and noted. A marker kernel before each call separates the calls; it
spins for a known number of cycles, so its time gives the SM clock on either side.

Nsight Compute adds a constant to the time of any kernel. The difference for a fill of one element, timed in the same
run on both sides, is that constant: `offset us`. The tolerance applies to the difference beyond it.

The sides share XLA's programs and Triton's configurations through caches on disk. If they still ran different kernels,
and their times disagree, the row is `unlike`: it says nothing about the timer.

Exit status: 0; 1 if a row is off or there is none; 2 without ncu; 3 if this machine does not permit profiling.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from suite import hardware, ops  # noqa: E402
from suite.core.files import write_atomically  # noqa: E402
from suite.hardware.device import resolve  # noqa: E402
from suite.problem.case import Case  # noqa: E402
from suite.problem.operation import Operation  # noqa: E402
from suite.processes.codec import to_json  # noqa: E402
from suite.profiling import nsight  # noqa: E402
from suite.profiling.nsight import NsightError  # noqa: E402
from validation.nsight import profiler, sides  # noqa: E402
from validation.nsight.rows import HEADS, NsightRow, cells, markdown, merge, summary, to_csv  # noqa: E402

IMPLEMENTATIONS = ("triton", "jax", "cuda", "torch")


def largest(op: Operation, dtype: str) -> Case:
    """Return the default case with the most flops; the first of several.

    It has another dtype if the operation has no default case of this one.
    """
    cases = op.default_cases("cuda")
    return max([case for case in cases if case.dtype == dtype] or cases, key=op.flops)


def chosen(options: argparse.Namespace) -> list[Case]:
    """Return the largest default cases, or the cases of the requested shapes."""
    operations = [ops.get(name) for name in options.op or ops.alone()]
    dtypes = options.dtype or ["bfloat16"]
    if not options.shape:
        return [largest(op, dtype) for op in operations for dtype in dtypes]
    if len(operations) != 1:
        raise SystemExit("--shape names the dimensions of one operation: give one --op")
    op = operations[0]
    return [op.case(shape, dtype) for text in options.shape for shape in op.parse_shapes(text) for dtype in dtypes]


def run_side(settings: dict[str, Any], folder: Path, executable: str, timeout_s: float) -> list[dict[str, Any]]:
    """Run one turn of one side. Returns its entries. Raises `NsightError` or `TimeoutExpired`."""
    label = f"{settings['side']}-{settings['seed']}"
    files = {name: folder / f"{label}.{name}" for name in ("answers", "plan", "ncu", "log")}
    for path in files.values():
        path.unlink(missing_ok=True)
    settings = {**settings, "answers": str(files["answers"]), "plan": str(files["plan"])}
    program = [sys.executable, str(Path(__file__).resolve()), "--child", json.dumps(settings)]
    if settings["side"] == "profile":
        program = [*nsight.command(executable, files["ncu"], [nsight.DURATION]), *program]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])),
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "JAX_COMPILATION_CACHE_DIR": str(folder / "jax"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
        "TRITON_CACHE_AUTOTUNING": "1",
    }
    with files["log"].open("wb") as log:
        process = subprocess.Popen(program, stdout=log, stderr=log, env=environment, cwd=ROOT, start_new_session=True)
        try:
            code = process.wait(timeout=timeout_s)
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            raise
    said = files["log"].read_text(errors="replace")
    print("".join(f"    {line}\n" for line in said.splitlines() if " late" in line), end="", flush=True)
    table = files["ncu"].read_text(errors="replace") if files["ncu"].exists() else ""
    if not files["answers"].exists():
        tail = " ".join([*said.splitlines()[-8:], *table.splitlines()[-8:]])[-1500:]
        raise NsightError(
            f"the {settings['side']} side ended with {code}: {tail}",
            any(word in said + table for word in nsight.REFUSALS),
        )
    entries: list[dict[str, Any]] = json.loads(files["answers"].read_text())
    if settings["side"] == "profile":
        profiler.add_profile(entries, files["plan"].read_text().splitlines() if files["plan"].exists() else [], table)
    return entries


def compare(options: argparse.Namespace, executable: str, folder: Path) -> Iterator[list[NsightRow]]:
    """Yield the rows known so far after each turn. Ends when the time is up, once both sides have had a turn."""
    cases = [to_json(case) for case in chosen(options)]
    turns: dict[str, list[list[dict[str, Any]]]] = {"record": [], "profile": []}
    took: dict[str, float] = {}
    deadline = time.monotonic() + options.seconds
    for block in range(options.blocks):
        for side in turns:
            left = deadline - time.monotonic()
            if block and took[side] > left:
                print(f"no time for another turn of {side}: {left:.0f} s left", flush=True)
                return
            settings = {
                "side": side,
                "cases": cases,
                "implementations": options.impl or list(IMPLEMENTATIONS),
                "period_s": options.period_ms / 1000,
                "rounds": options.rounds,
                "seed": block,
            }
            print(f"block {block + 1}: {side}", flush=True)
            begin = time.monotonic()
            try:
                turns[side].append(run_side(settings, folder, executable, max(left, 1.0)))
            except subprocess.TimeoutExpired:
                if not all(turns.values()):
                    raise NsightError(f"the first turn of {side} did not end within {left:.0f} s: fewer --op") from None
                return
            took[side] = time.monotonic() - begin
            if all(turns.values()):
                yield merge(turns)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--op", action="append", help="operation; may be repeated; default: all")
    parser.add_argument(
        "--impl", action="append", help=f"implementation; may be repeated; default: {', '.join(IMPLEMENTATIONS)}"
    )
    parser.add_argument(
        "--dtype", action="append", help="default: bfloat16", choices=["bfloat16", "float16", "float32"]
    )
    parser.add_argument("--shape", action="append", help="other sizes of the one --op, e.g. N=1048576")
    parser.add_argument("--rounds", type=int, default=7, help="calls of an implementation in one turn (at least 6)")
    parser.add_argument("--blocks", type=int, default=2, help="turns of each side")
    parser.add_argument("--period-ms", type=float, default=100.0, help="period of the calls")
    parser.add_argument("--seconds", type=float, default=225.0, help="time for everything")
    parser.add_argument("--out", type=Path, help="folder of nsight.csv and nsight.md; default results/<device>/proof")
    parser.add_argument("--keep", type=Path, help="folder for the logs of both sides; default: none are kept")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.child:
        sides.child(json.loads(options.child))
        return 0
    executable = nsight.ncu()
    if executable is None:
        print(f"ncu (Nsight Compute) is not on PATH, nor at {', '.join(nsight.NCU_PATHS)}", file=sys.stderr)
        return 2
    device = resolve("cuda:0")
    environment = hardware.environment_record("cuda", 0)
    out = options.out or device.results_folder / "proof"
    rows: list[NsightRow] = []
    with tempfile.TemporaryDirectory(prefix="suite-nsight-") as temporary:
        folder = options.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        try:
            for rows in compare(options, executable, folder):
                write_atomically(out / "nsight.csv", to_csv(rows))
                text = markdown(rows, environment, profiler.version(executable), options.period_ms)
                write_atomically(out / "nsight.md", text)
        except NsightError as error:
            print(error, file=sys.stderr)
            return 3 if error.refused else 1
    for row in rows:
        print("  ".join(f"{head}={cell}" for head, cell in zip(HEADS, cells(row), strict=True) if cell))
    print(f"{summary(rows)}; written to {out}")
    return 1 if not rows or any(row.verdict == "off" for row in rows) else 0


if __name__ == "__main__":
    raise SystemExit(main())
