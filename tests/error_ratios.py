"""How far right kernels stay below their bounds, and how far wrong ones go beyond: the largest error over its bound.

    python tests/error_ratios.py                                       # all that this device can run, nothing is kept
    python tests/error_ratios.py --out results/nvidia-h200/proof       # keeps error_ratios.csv and .md
    python tests/error_ratios.py --op matmul --impl cuda --inputs sizes

Each implementation of each operation is checked as `compare` checks it, in a worker process, on every family of inputs,
the sizes of `--sweep`, and the default sizes. It passes when no right kernel has a ratio above 0.7, nothing failed, and
every mistake of the gallery tests/wrong_kernels has one above 1 or is refused for another reason. What test_parity.py
lists as beyond a library (KNOWN) is set aside, and counted.
"""

from __future__ import annotations

import argparse
import csv
import io
import math
import statistics
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, fields
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from suite import frameworks, hardware, ops  # noqa: E402
from suite.core.errors import SuiteError  # noqa: E402
from suite.core.files import write_atomically  # noqa: E402
from suite.hardware.device import Device, resolve  # noqa: E402
from suite.implementations import builtin  # noqa: E402
from suite.problem.case import Case  # noqa: E402
from suite.results.render import pipe_table, plain  # noqa: E402
from suite.worker.pool import Pool  # noqa: E402

RIGHT_AT_MOST = 0.7
CPU_FLOPS = 2**24
"""On a CPU a case of the sweep with more arithmetic takes an interpreted or emulated kernel too long."""


@dataclass(frozen=True)
class Ratio:
    """One implementation on one case. `known`: why a library cannot do it, where it is known not to."""

    operation: str
    case: str
    dtype: str
    precision: str
    implementation: str
    status: str
    error_ratio: float | None
    reason: str = ""
    known: str = ""

    @property
    def passed(self) -> bool:
        if self.known or self.status in ("unsupported", "unavailable"):
            return True
        return self.status == "ok" and self.error_ratio is not None and self.error_ratio <= RIGHT_AT_MOST


@dataclass(frozen=True)
class Refusal:
    """One mistake of the gallery: the largest ratio it had, and how it was refused."""

    name: str
    about: str
    agrees: bool
    error_ratio: float
    reason: str

    @property
    def kind(self) -> str:
        return self.reason.partition(":")[0]

    @property
    def passed(self) -> bool:
        return not self.agrees and (self.kind != "value" or self.error_ratio > 1.0)


@dataclass(frozen=True)
class Group:
    """The ratios of one implementation in one arithmetic, over all sizes and families."""

    operation: str
    dtype: str
    precision: str
    implementation: str
    count: int
    median: float
    nearly_all: float
    largest: float
    where: str
    """The case of the largest."""


def groups(ratios: Iterable[Ratio]) -> list[Group]:
    """In the order of the first of each. Only what agrees: a wrong result has no place in a distribution."""
    found: dict[tuple[str, ...], list[Ratio]] = {}
    for each in ratios:
        if each.status == "ok" and each.error_ratio is not None:
            key = each.operation, each.dtype, each.precision, each.implementation
            found.setdefault(key, []).append(each)
    made = []
    for key, members in found.items():
        members.sort(key=lambda each: float(each.error_ratio or 0))
        values = [float(each.error_ratio or 0) for each in members]
        nearly_all = values[math.ceil(0.95 * len(values)) - 1]
        operation, dtype, precision, implementation = key
        made.append(
            Group(operation, dtype, precision, implementation, len(values), statistics.median(values), nearly_all,
                  values[-1], members[-1].case)
        )  # fmt: skip
    return made


def verdict(ratios: Sequence[Ratio], refusals: Sequence[Refusal]) -> tuple[bool, str]:
    """Whether all is as it should be, and a sentence with the numbers."""
    right = [each for each in ratios if each.status == "ok" and each.error_ratio is not None]
    largest = max((float(each.error_ratio or 0) for each in right), default=0.0)
    failed = [each for each in ratios if not each.passed]
    passing = [each for each in refusals if not each.passed]
    by_value = [each.error_ratio for each in refusals if each.kind == "value"]
    passed = bool(right) and not failed and not passing
    text = (
        f"{'passed' if passed else 'not passed'}: {len(right)} results of right kernels, largest ratio {largest:.3f} "
        f"(at most {RIGHT_AT_MOST:g}), {len(failed)} beyond it or failed, {sum(bool(r.known) for r in ratios)} known "
        "to be beyond their library"
    )
    if refusals:
        least = f", the least ratio by value {min(by_value):.3g} (above 1)" if by_value else ""
        text += f"; {len(refusals)} wrong kernels, {len(passing)} not refused{least}"
    return passed, text


# Measuring


def cases(operation: str, device_type: str, families: Sequence[str]) -> Iterator[Case]:
    """Every case once: the families, of which `normal` has the default sizes, and the sweep."""
    op = ops.get(operation)
    found: dict[Case, None] = {}
    for name, family in op.families.items():
        if (not families and not family.needs_gpu) or name in families:
            found |= dict.fromkeys(op.cases(name, device_type))
    if not families or "sweep" in families:
        found |= dict.fromkeys(
            case
            for case in op.cases("normal", device_type, op.sweep)
            if device_type == "cuda" or op.flops(case) <= CPU_FLOPS
        )
    yield from found


def known(operation: str, implementation: str, case: Case, device_type: str) -> str:
    """Why the library behind an implementation cannot do this case, from the table that the tests use."""
    from test_parity import KNOWN

    dtypes, why = KNOWN.get((device_type, operation, implementation, case.inputs), ((), ""))
    return why if case.dtype in dtypes else ""


def measure(
    where: Device, operations: Sequence[str], patterns: Sequence[str], families: Sequence[str], timeout_s: float,
    jobs: int,
) -> Iterator[Ratio]:  # fmt: skip
    """In the order of the cases, `jobs` of them at a time, each in worker processes of its own."""
    workers = threading.local()
    pools: list[Pool] = []

    def check(case: Case, lines: Sequence[builtin.Implementation]) -> list[dict[str, Any]]:
        if not hasattr(workers, "pool"):
            workers.pool = Pool(where)
            pools.append(workers.pool)
        return [ask(workers.pool, case, line, timeout_s) for line in lines]

    waiting = []
    try:
        with ThreadPoolExecutor(jobs) as executor:
            for operation in operations:
                lines = [
                    line
                    for line in builtin.implementations(operation)
                    if any(fnmatchcase(line.name, pattern) for pattern in patterns) and line.obstacle(where) is None
                ]
                for case in cases(operation, where.type, families):
                    able = [line for line in lines if line.obstacle(where, case) is None]
                    waiting.append((case, able, executor.submit(check, case, able)))
            for case, able, future in waiting:
                for line, answer in zip(able, future.result(), strict=True):
                    yield to_ratio(where, case, line, answer)
    finally:
        for pool in pools:
            pool.discard()


def ask(pool: Pool, case: Case, line: builtin.Implementation, timeout_s: float) -> dict[str, Any]:
    request = {"do": "check", "case": case.to_json(), "implementation": line.name, "seed": 0}
    try:
        return pool.ask(request, timeout_s=timeout_s)
    except SuiteError as error:
        return {"status": "error", "reason": str(error)}


def to_ratio(where: Device, case: Case, line: builtin.Implementation, answer: Mapping[str, Any]) -> Ratio:
    status = answer["status"]
    why = known(case.operation, line.name, case, where.type) if status in ("wrong", "error") else ""
    return Ratio(
        case.operation, case.label, case.dtype, case.precision, line.name, status, answer.get("error_ratio"),
        answer.get("reason", ""), why,
    )  # fmt: skip


def gallery(where: Device, operations: Sequence[str]) -> Iterator[Refusal]:
    """Every mistake that this device can make, checked in this process as test_wrong_kernels.py does."""
    import torch
    import wrong_kernels

    from suite.checking.checked_call import Problem, examine

    for name in frameworks.names():
        frameworks.get(name).prepare(where)
    for entry in wrong_kernels.entries():
        adapter = frameworks.get(entry.framework)
        device = where if where.type in adapter.devices else Device(adapter.devices[0])
        if entry.operation not in operations or adapter.missing(device) or (entry.wrong.gpu and where.type != "cuda"):
            continue
        problem = Problem(entry.case, 3, torch.device(device.type, 0) if device.type == "cuda" else torch.device("cpu"))
        found = examine(
            lambda entry=entry: entry.make(entry.mistake),
            adapter,
            problem,
            claims_determinism=entry.wrong.deterministic,
        )
        yield Refusal(entry.name, entry.wrong.about, found.agrees, found.error_ratio, found.reason)


# Writing


def to_csv(ratios: Sequence[Ratio]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, [each.name for each in fields(Ratio)], lineterminator="\n")
    writer.writeheader()
    writer.writerows({**asdict(each), "reason": " ".join(each.reason.split())} for each in ratios)
    return text.getvalue()


HEADS = ("operation", "dtype", "precision", "implementation", "results", "median", "95%", "largest", "of")


def markdown(ratios: Sequence[Ratio], refusals: Sequence[Refusal], environment: Mapping[str, Any]) -> str:
    device = plain(environment.get("device", {}).get("name", "an unknown device"))
    versions = ", ".join(f"{name} {version}" for name, version in environment.get("packages", {}).items())
    command = str(environment.get("command", "")).replace("`", "'")
    body = [
        [
            *(plain(text) for text in (each.operation, each.dtype, each.precision, each.implementation)),
            str(each.count),
            *(f"{value:.3f}" for value in (each.median, each.nearly_all, each.largest)),
            plain(each.where),
        ]
        for each in groups(ratios)
    ]
    lines = [
        f"# Largest error over its bound on {device}",
        "",
        f"Command: `{command}`. Versions: {plain(versions)}. {plain(verdict(ratios, refusals)[1])}. A result is one "
        "implementation on one case: the largest ratio over all elements of two draws of inputs. Where the bounds come "
        "from: docs/agreement.md.",
        "",
        pipe_table(list(HEADS), body, right=set(HEADS[4:8])),
        "",
    ]
    aside = [each for each in ratios if each.known or not each.passed]
    if aside:
        cells = [
            [plain(text) for text in (each.operation, each.case, each.dtype, each.precision, each.implementation)]
            + [each.status, plain(f"known: {each.known}" if each.known else each.reason)]
            for each in aside
        ]
        heads = ["operation", "case", "dtype", "precision", "implementation", "status", "why"]
        lines += ["## Not in the table", "", pipe_table(heads, cells, right=set()), ""]
    if refusals:
        cells = [
            [plain(each.name), plain(each.about), each.kind or "passes", f"{each.error_ratio:.3g}"]
            for each in sorted(refusals, key=lambda each: (each.passed, each.kind != "value", each.error_ratio))
        ]
        heads = ["wrong kernel", "what is wrong", "refused as", "largest ratio"]
        lines += ["## Wrong kernels", "", pipe_table(heads, cells, right={"largest ratio"}), ""]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--op", action="append", choices=ops.names(), help="operation; may be repeated; default: all")
    parser.add_argument("--impl", action="append", help="implementations, as a pattern; default: all")
    parser.add_argument("--inputs", action="append", help="family, or `sweep`; default: all but `huge`")
    parser.add_argument("--device", help="cpu, cuda or cuda:INDEX; default: the first GPU, or the CPU")
    parser.add_argument("--timeout", type=float, default=120.0, help="seconds for the first call of an implementation")
    parser.add_argument("--jobs", type=int, default=1, help="cases that are checked at the same time")
    parser.add_argument("--no-gallery", action="store_true", help="leave tests/wrong_kernels out")
    parser.add_argument("--out", type=Path, help="folder of error_ratios.csv and .md; default: nothing is kept")
    options = parser.parse_args(arguments)
    try:
        where = resolve(options.device)
    except SuiteError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    operations = options.op or ops.names()
    environment = hardware.environment(where.type, where.index)
    ratios = []
    for ratio in measure(where, operations, options.impl or ["*"], options.inputs or [], options.timeout, options.jobs):
        ratios.append(ratio)
        if not ratio.passed:
            identity = ratio.operation, ratio.case, ratio.dtype, ratio.precision, ratio.implementation
            print(*identity, ratio.status, ratio.error_ratio, ratio.reason, flush=True)
    refusals = [] if options.no_gallery else list(gallery(where, operations))
    if options.out is not None:
        write_atomically(options.out / "error_ratios.csv", to_csv(ratios))
        write_atomically(options.out / "error_ratios.md", markdown(ratios, refusals, environment))
    passed, text = verdict(ratios, refusals)
    for each in groups(ratios):
        print(f"{each.operation:12} {each.dtype:9} {each.precision:5} {each.implementation:20} {each.count:4}  "
              f"{each.median:.3f}  {each.nearly_all:.3f}  {each.largest:.3f}  {each.where}")  # fmt: skip
    print(text)
    return 0 if passed else 1


if __name__ == "__main__":
    raise SystemExit(main())
