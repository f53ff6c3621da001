"""The suite's recorder against Nsight Compute, an independent one: the same calls on the same device.

    python tests/against_nsight.py                       # of every operation the largest default case in bfloat16
    python tests/against_nsight.py --op matmul --impl torch --impl triton --out results/nvidia-h200/proof

Both sides do the same thing in a process of their own (CUPTI has one subscriber): draw the inputs, warm the lines up,
then call them in shuffled rounds, each call after the suite's own eviction of the cache and on the same beat, one call
every --period-ms. The beat matters: a matmul that runs every other millisecond is held back by the power cap, one that
runs ten times a second, as Nsight Compute's own overhead forces it to, is not; so the suite is made to keep it as well.
The sides take turns, --blocks times each, and what drifts between blocks shows in the table.

Nsight Compute is asked for one metric, `gpu__time_duration`, in one pass, without its clock control and without its own
flush of the caches (it would flush between the kernels of one call). It profiles kernels only, so that what a
call spends in copies and fills is taken out of the suite's number, and said. A marker kernel before each call tells the
calls apart; it spins for a known number of cycles, so that its time on either side gives the clock at which the call
ran there.

Nsight Compute's time of a kernel is longer than CUPTI's by what it adds to any kernel, however short. A fill of one
element in the same run, on both sides, says how much that is: `offset us`, from which the difference is counted.

XLA's programs and Triton's choices are shared through caches on disk; where the times disagree because the two sides
still ran other kernels the line is `unlike`, which is no verdict on the timer.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from suite import frameworks, hardware, ops  # noqa: E402
from suite.core.files import write_atomically  # noqa: E402
from suite.doctor.timer_proof.checks import SHARE, SHORT_US, SLACK_US, standard  # noqa: E402
from suite.hardware.device import resolve  # noqa: E402
from suite.implementations import builtin  # noqa: E402
from suite.problem.case import Case  # noqa: E402
from suite.problem.operation import Operation  # noqa: E402
from suite.results.render import number, pipe_table, plain  # noqa: E402
from suite.timing import median  # noqa: E402

IMPLEMENTATIONS = ("triton", "jax", "cuda", "torch")
METRIC = "gpu__time_duration.sum"
EMPTY = "empty"
MARKER = "spin_kernel"
"""What torch.cuda._sleep runs."""
MARKER_CYCLES = 2_000_000
"""A millisecond and more: long enough for events to time it to within 0.3%."""
UNITS = {"ns": 1e-3, "nsecond": 1e-3, "us": 1.0, "usecond": 1.0, "ms": 1e3, "msecond": 1e3, "s": 1e6, "second": 1e6}
PLACES = ("/usr/local/cuda/bin/ncu", "/usr/local/cuda/nsight-compute*/ncu", "/opt/nvidia/nsight-compute/*/ncu")
REFUSALS = ("ERR_NVGPUCTRPERM", "LibraryNotLoaded", "Failed to initialize the profiler")
"""What ncu says where it may not, or cannot, read the device's counters at all."""


class NsightError(Exception):
    """Nsight Compute gave no table. `refused` where this machine does not let it, whatever the program."""

    def __init__(self, message: str, refused: bool = False) -> None:
        super().__init__(message)
        self.refused = refused


# ---- plain functions on what the two sides left ----------------------------------------------------------------------


@dataclass(frozen=True)
class Kernel:
    name: str
    us: float


def parse(text: str) -> list[Kernel]:
    """The kernels in the CSV that ncu prints, in either of its forms, in the order in which they ran."""
    lines = text.splitlines()
    start = next((i for i, line in enumerate(lines) if line.startswith('"ID"')), None)
    if start is None:
        said = [line for line in lines if line.startswith("==")] or lines
        raise NsightError(
            "ncu printed no table: " + " ".join(said[-6:])[:600], refused=any(word in text for word in REFUSALS)
        )
    body = [line for line in lines[start:] if line.startswith('"')]
    rows = list(csv.DictReader(body))
    if rows and METRIC in rows[0]:  # one row a kernel, after a row of units
        unit = rows[0][METRIC]
        return [Kernel(row["Kernel Name"], _us(row[METRIC], unit)) for row in rows[1:]]
    return [
        Kernel(row["Kernel Name"], _us(row["Metric Value"], row["Metric Unit"]))
        for row in rows
        if row["Metric Name"] == METRIC
    ]


def _us(value: str, unit: str) -> float:
    try:
        return float(value.replace(",", "")) * UNITS[unit]
    except (ValueError, KeyError) as error:
        raise NsightError(f"ncu gave {METRIC} as {value!r} {unit!r}") from error


def calls(kernels: Sequence[Kernel]) -> list[list[Kernel]]:
    """Each call: its marker and the kernels up to the next."""
    found: list[list[Kernel]] = []
    for kernel in kernels:
        if MARKER in kernel.name:
            found.append([kernel])
        elif found:
            found[-1].append(kernel)
        else:
            raise NsightError(f"{kernel.name} was profiled before the first marker")
    return found


@dataclass
class Side:
    """What one side has of one line: a median a block, and what it ran last."""

    medians: list[float] = field(default_factory=list)
    samples: int = 0
    names: list[str] = field(default_factory=list)
    config: str = ""
    other_us: float = 0.0
    """Copies and fills, taken out of the medians."""
    clocks: list[float] = field(default_factory=list)
    """SM clock before the calls in MHz, a median a block."""
    reason: str = ""

    @property
    def mhz(self) -> float | None:
        return sum(self.clocks) / len(self.clocks) if self.clocks else None

    @property
    def us(self) -> float:
        return sum(self.medians) / len(self.medians)


@dataclass(frozen=True)
class Line:
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


def judge(key: Key, ours: Side, theirs: Side, offset_us: float = 0.0) -> Line:
    """`ok` or `off`; `unlike` where the two ran other kernels and disagree, `not run` where one has no number.

    `offset_us` is the difference for a kernel that does nothing. A side that has the other's kernels but for some has
    lost those, and is `off` even if the times agree.
    """
    if not ours.medians or not theirs.medians:
        return Line(*key, verdict="not run", note=ours.reason or theirs.reason or "no samples")
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
    return Line(*key, verdict=verdict, **numbers, note="; ".join(notes))


def _names(kernels: Mapping[str, int]) -> str:
    return ", ".join(name[:60] for name in kernels) or "none"


VERDICTS = ("off", "unlike", "not run", "ok")
HEADS = (
    "verdict", "operation", "case", "dtype", "implementation", "suite us", "Nsight us", "ratio", "difference us",
    "allowed us", "kernels", "offset us", "suite MHz", "Nsight MHz", "suite's blocks", "Nsight's blocks", "note",
)  # fmt: skip
NUMERIC = frozenset(HEADS[5:16])


def cells(line: Line) -> list[str]:
    return [
        line.verdict,
        line.operation,
        line.case,
        line.dtype,
        line.implementation,
        number(line.suite_us, 5),
        number(line.nsight_us, 5),
        number(line.ratio, 4),
        number(line.difference_us, 3),
        number(line.tolerance_us, 3),
        "" if line.kernels is None else str(line.kernels),
        number(line.offset_us, 3),
        number(line.suite_mhz, 4),
        number(line.nsight_mhz, 4),
        line.suite_blocks,
        line.nsight_blocks,
        line.note,
    ]


def to_csv(lines: Sequence[Line]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, [each.name for each in fields(Line)], lineterminator="\n")
    writer.writeheader()
    writer.writerows({k: "" if v is None else v for k, v in asdict(line).items()} for line in lines)
    return text.getvalue()


def markdown(lines: Sequence[Line], environment: Mapping[str, Any], version: str, period_ms: float) -> str:
    return "\n".join(
        [
            f"# The suite's recorder against Nsight Compute on {plain(environment['device']['name'])}",
            "",
            f"Command: `{environment['command']}`. {plain(version)}; "
            f"{plain(', '.join(f'{k} {v}' for k, v in environment['packages'].items()))}. "
            f"One call every {period_ms:g} ms on both sides, in shuffled rounds, the cache evicted before each; the "
            "sides take turns, and a block is one turn's median. Kernels only. "
            f"Allowed: {100 * SHARE:g}% above {SHORT_US:g} us, {SLACK_US:g} us up to there. {summary(lines)}.",
            "",
            pipe_table(list(HEADS), [[plain(cell) for cell in cells(line)] for line in lines], right=set(NUMERIC)),
            "",
        ]
    )


def summary(lines: Sequence[Line]) -> str:
    counts = {verdict: sum(line.verdict == verdict for line in lines) for verdict in VERDICTS}
    return f"{len(lines)} lines: " + ", ".join(f"{count} {verdict}" for verdict, count in counts.items() if count)


# ---- what is compared ------------------------------------------------------------------------------------------------


def largest(op: Operation, dtype: str) -> Case:
    """The default case with the most arithmetic; the first of several."""
    return max((case for case in op.default_cases("cuda") if case.dtype == dtype), key=op.flops)


def chosen(options: argparse.Namespace) -> list[Case]:
    """The largest default cases, or the shapes asked for."""
    operations = [ops.get(name) for name in options.op or ops.names()]
    dtypes = options.dtype or ["bfloat16"]
    if not options.shape:
        return [largest(op, dtype) for op in operations for dtype in dtypes]
    if len(operations) != 1:
        raise SystemExit("--shape names the dimensions of one operation: give one --op")
    op = operations[0]
    return [op.case(op.parse_shape(text), dtype) for text in options.shape for dtype in dtypes]


def key_of(case: Case, implementation: str) -> Key:
    return case.operation, case.label, case.dtype, case.precision, implementation


# ---- the two sides, each in a process of its own ---------------------------------------------------------------------


class Pace:
    """A beat of `period_s`. `late` counts the calls that came after theirs."""

    def __init__(self, period_s: float) -> None:
        self.period_s, self.next, self.late = period_s, 0.0, 0

    def wait(self) -> None:
        now = time.perf_counter()
        self.late += 0 < self.next < now - self.period_s / 10
        if now < self.next:
            time.sleep(self.next - now)
        self.next = max(self.next, now) + self.period_s


def child(settings: dict[str, Any]) -> None:
    """Run one side over all cases and write what it has; on a line that fails, what it said."""
    from suite.worker.server import Worker

    device = resolve("cuda:0")
    for name in frameworks.names():
        frameworks.get(name).prepare(device)
    worker = Worker(device, lambda document: None)
    answers: list[dict[str, Any]] = []
    side = {"record": record, "profile": profile}[settings["side"]]
    for case in map(Case.from_json, settings["cases"]):
        begin = time.perf_counter()
        bound, entries = bind(case, settings["implementations"], worker)
        answers += entries
        ready = time.perf_counter()
        late = side(case, bound, {entry["implementation"]: entry for entry in entries}, settings)
        ends = time.perf_counter()
        print(
            f"{case.operation}: ready in {ready - begin:.1f} s, called in {ends - ready:.1f} s, {late} late", flush=True
        )
        Path(settings["answers"]).write_text(json.dumps(answers), encoding="utf-8")


def bind(case: Case, names: Sequence[str], worker: Any) -> tuple[list[Any], list[dict[str, Any]]]:
    """The lines that run this case, called once; and an entry for each line asked for."""
    problem = worker.hold(case, 0)
    bound, entries = [], []
    for line in builtin.implementations(case.operation):
        if line.name not in names:
            continue
        entry: dict[str, Any] = {"key": key_of(case, line.name), "implementation": line.name}
        entries.append(entry)
        try:
            obstacle = line.obstacle(worker.device)
            if obstacle is not None:
                raise NotImplementedError(": ".join(obstacle))
            ready = worker.bind(line.name, problem)
            line.adapter.wait(ready.issue())
            entry["config"] = line.adapter.configuration(line.load())
            bound.append(ready)
        except Exception as error:  # one line's failure is one line
            entry["reason"] = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
    bound.append(Empty())
    entries.append({"key": key_of(case, EMPTY), "implementation": EMPTY, "config": ""})
    return bound, entries


class Empty:
    """A fill of one element, as a line of its own."""

    def __init__(self) -> None:
        import torch

        self.implementation = SimpleNamespace(name=EMPTY, adapter=frameworks.get("torch"))
        self.element = torch.empty(1, device="cuda")

    def issue(self) -> Any:
        return self.element.fill_(0.0)


def record(case: Case, bound: Sequence[Any], entries: Mapping[str, Any], settings: Mapping[str, Any]) -> int:
    """The suite's side: its own measurement, on the beat."""
    import torch

    from suite.timing import Call
    from suite.timing.sampling import Measurement
    from suite.timing.target import CudaTarget

    pace = Pace(settings["period_s"])

    now = ""
    spins: dict[str, list[tuple[Any, Any]]] = {}

    def progress(name: str) -> None:
        nonlocal now
        now = name

    class Paced(CudaTarget):
        def evict(self) -> None:
            pace.wait()
            super().evict()
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            torch.cuda._sleep(MARKER_CYCLES)
            end.record()
            spins.setdefault(now, []).append((begin, end))

    lines = [Call(each.implementation.name, each.issue, each.implementation.adapter.wait) for each in bound]
    if not lines:
        return 0
    budget_s = settings["rounds"] * len(lines) * settings["period_s"]
    target = Paced(torch.device("cuda", 0))
    measurement = Measurement(lines, target, "cold", settings["seed"], progress)
    for name, timing in measurement.measure(budget_s, 0.0, False).items():
        entry = entries[name]
        entry["mhz"] = median([MARKER_CYCLES / 1000 / begin.elapsed_time(end) for begin, end in spins[name]])
        if timing.device_us is None:
            entry["reason"] = timing.error or timing.recorder_reason
            continue
        others = sum(a.end - a.start for a in timing.activities if a.kind != "kernel") / 1000
        entry["names"] = [a.name for a in timing.activities if a.kind == "kernel"]
        entry |= {"median": timing.device_us - others, "other_us": others, "samples": timing.samples}
    return pace.late


def profile(case: Case, bound: Sequence[Any], entries: Mapping[str, Any], settings: Mapping[str, Any]) -> int:
    """Nsight Compute's side: the same calls, each behind a marker. Only these are profiled."""
    import torch

    from suite.timing.target import CudaTarget

    target, pace, order = (
        CudaTarget(torch.device("cuda", 0)),
        Pace(settings["period_s"]),
        random.Random(settings["seed"]),
    )
    for each in bound:
        for _ in range(3):
            each.implementation.adapter.wait(each.issue())
    slow: set[str] = set()
    for turn in range(settings["rounds"]):
        for each in order.sample(list(bound), len(bound)):
            name = each.implementation.name
            if name in slow and turn >= 3:
                continue
            pace.wait()
            target.evict()
            target.synchronize()
            torch.cuda.profiler.start()
            torch.cuda._sleep(MARKER_CYCLES)
            target.synchronize()
            begin = time.perf_counter()
            each.implementation.adapter.wait(each.issue())
            target.synchronize()
            if time.perf_counter() - begin > 0.5:
                slow.add(name)
            torch.cuda.profiler.stop()
            with Path(settings["plan"]).open("a", encoding="utf-8") as plan:
                plan.write(json.dumps(entries[name]["key"]) + "\n")
    return pace.late


# ---- the parent ------------------------------------------------------------------------------------------------------


def ncu() -> str | None:
    """Nsight Compute's command line."""
    found = shutil.which("ncu")
    if found:
        return found
    candidates = [str(path) for place in PLACES for path in sorted(Path("/").glob(place.lstrip("/")))]
    return next((path for path in reversed(candidates) if os.access(path, os.X_OK)), None)


def version(executable: str) -> str:
    done = subprocess.run([executable, "--version"], capture_output=True, text=True, check=False)
    found = re.search(r"Version (\S+)", done.stdout)
    return f"Nsight Compute {found.group(1)}" if found else "Nsight Compute"


def command(executable: str, log: Path) -> list[str]:
    return [
        executable,
        *("--target-processes", "application-only"),
        *("--profile-from-start", "off"),
        *("--clock-control", "none"),
        *("--cache-control", "none"),
        *("--metrics", METRIC),
        *("--print-units", "base"),
        *("--print-kernel-base", "mangled"),
        *("--csv", "--log-file", str(log)),
    ]


def run_side(settings: dict[str, Any], folder: Path, executable: str, timeout_s: float) -> list[dict[str, Any]]:
    """One turn of one side: its entries, each with a median. Raises `NsightError`, or `TimeoutExpired`."""
    label = f"{settings['side']}-{settings['seed']}"
    files = {name: folder / f"{label}.{name}" for name in ("answers", "plan", "ncu", "log")}
    for path in files.values():
        path.unlink(missing_ok=True)
    settings = {**settings, "answers": str(files["answers"]), "plan": str(files["plan"])}
    program = [sys.executable, str(Path(__file__).resolve()), "--child", json.dumps(settings)]
    if settings["side"] == "profile":
        program = [*command(executable, files["ncu"]), *program]
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
            f"the {settings['side']} side ended with {code}: {tail}", any(word in said + table for word in REFUSALS)
        )
    entries: list[dict[str, Any]] = json.loads(files["answers"].read_text())
    if settings["side"] == "profile":
        add_profile(entries, files["plan"].read_text().splitlines() if files["plan"].exists() else [], table)
    return entries


def add_profile(entries: Sequence[dict[str, Any]], plan: Sequence[str], table: str) -> None:
    """Give each call that was planned its kernels, and each line its median."""
    if not plan:
        return
    found = calls(parse(table))
    if len(found) != len(plan):
        raise NsightError(f"ncu saw {len(found)} calls of {len(plan)}: {table.splitlines()[-3:]}")
    by_key: dict[Key, list[list[Kernel]]] = {}
    for text, kernels in zip(plan, found, strict=True):
        by_key.setdefault(tuple(json.loads(text)), []).append(kernels)
    for entry in entries:
        runs = by_key.get(tuple(entry["key"]))
        if runs:
            entry["median"] = median([sum(kernel.us for kernel in run[1:]) for run in runs])
            entry["mhz"] = median([MARKER_CYCLES / run[0].us for run in runs])
            entry["names"] = [kernel.name for kernel in runs[-1][1:]]
            entry["samples"] = len(runs)


def merge(sides: Mapping[str, list[list[dict[str, Any]]]]) -> list[Line]:
    """The lines, from all turns of both sides."""
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


def compare(options: argparse.Namespace, executable: str, folder: Path) -> Iterator[list[Line]]:
    """The lines known so far, after each turn. Stops early when the time is up, if both sides have had a turn."""
    cases = [case.to_json() for case in chosen(options)]
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
    parser.add_argument("--impl", action="append", help=f"line; may be repeated; default: {', '.join(IMPLEMENTATIONS)}")
    parser.add_argument(
        "--dtype", action="append", help="default: bfloat16", choices=["bfloat16", "float16", "float32"]
    )
    parser.add_argument("--shape", action="append", help="other sizes of the one --op, e.g. N=1048576")
    parser.add_argument("--rounds", type=int, default=7, help="calls of a line in one turn (at least 6)")
    parser.add_argument("--blocks", type=int, default=2, help="turns of each side")
    parser.add_argument("--period-ms", type=float, default=100.0, help="time from call to call")
    parser.add_argument("--seconds", type=float, default=225.0, help="time for everything")
    parser.add_argument("--out", type=Path, help="folder of nsight.csv and nsight.md; default results/<device>/proof")
    parser.add_argument("--keep", type=Path, help="folder for the logs of both sides; default: none are kept")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.child:
        child(json.loads(options.child))
        return 0
    executable = ncu()
    if executable is None:
        print(f"ncu (Nsight Compute) is not on PATH, nor at {', '.join(PLACES)}", file=sys.stderr)
        return 2
    device = resolve("cuda:0")
    environment = hardware.environment("cuda", 0)
    out = options.out or device.results_folder / "proof"
    lines: list[Line] = []
    with tempfile.TemporaryDirectory(prefix="suite-nsight-") as temporary:
        folder = options.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        try:
            for lines in compare(options, executable, folder):
                write_atomically(out / "nsight.csv", to_csv(lines))
                text = markdown(lines, environment, version(executable), options.period_ms)
                write_atomically(out / "nsight.md", text)
        except NsightError as error:
            print(error, file=sys.stderr)
            return 3 if error.refused else 1
    for line in lines:
        print("  ".join(f"{head}={cell}" for head, cell in zip(HEADS, cells(line), strict=True) if cell))
    print(f"{summary(lines)}; written to {out}")
    return 1 if not lines or any(line.verdict == "off" for line in lines) else 0


if __name__ == "__main__":
    raise SystemExit(main())
