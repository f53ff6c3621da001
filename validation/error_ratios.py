"""Measures error ratios (largest error over its bound): right kernels should stay below 1, wrong ones exceed it.

    python validation/error_ratios.py                                       # everything this device runs
    python validation/error_ratios.py --out results/nvidia-h200/proof/error_ratios      # and writes files
    python validation/error_ratios.py --op matmul --impl cuda --inputs sizes

Each implementation is checked as `compare` checks it, in a worker process, on every family of inputs, the sizes of
`--sweep` and the default sizes. Passes if no right kernel fails or has a ratio above 0.7, and if every wrong kernel of
the gallery tests/wrong_kernels has a ratio above 1 or is refused for another reason. Cases that tests/known_limits.py
lists as known limits of a library are excluded and counted. Kernels of other libraries (PEER) run if --impl names them.

When an operation is finished, its files are written: OUT/OPERATION/error_ratios.csv, error_ratios.md and
wrong_kernels.csv. OUT/README.md has a line for each operation with files, from this run or an earlier one.

Exit status: 0 if it passes, 1 if not, 2 for an unknown device.
"""

from __future__ import annotations

import argparse
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from fnmatch import fnmatchcase
from itertools import groupby
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]  # tests/ has the gallery of wrong kernels

from suite import frameworks, hardware, ops  # noqa: E402
from suite.core.errors import SuiteError  # noqa: E402
from suite.core.files import write_atomically  # noqa: E402
from suite.hardware.device import Device, resolve  # noqa: E402
from suite.implementations import builtin  # noqa: E402
from suite.implementations.implementation import Implementation  # noqa: E402
from suite.problem.case import Case  # noqa: E402
from suite.worker.pool import Pool  # noqa: E402
from suite.worker.protocol import CheckRequest, Failed  # noqa: E402
from validation.error_ratio_files import (  # noqa: E402
    Ratio,
    Refusal,
    groups,
    markdown,
    overview,
    to_csv,
    verdict,
)

CPU_FLOPS = 2**24
"""Largest number of flops of a case of the sweep on a CPU, where interpreted and emulated kernels are slow."""


def cases(operation: str, device_type: str, families: Sequence[str]) -> Iterator[Case]:
    """Return every case once: those of the families (`normal` has the default sizes) and of the sweep."""
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
    """Return the known limit of the library that the case exceeds, from the parity tests' table; or empty."""
    from known_limits import KNOWN

    dtypes, why = KNOWN.get((device_type, operation, implementation, case.inputs), ((), ""))
    return why if case.dtype in dtypes else ""


def measure(
    where: Device, operations: Sequence[str], patterns: Sequence[str], families: Sequence[str], timeout_s: float,
    jobs: int,
) -> Iterator[Ratio]:  # fmt: skip
    """Yield the ratios in the order of the cases; `jobs` cases at a time, each in its own worker process.

    patterns: names of implementations; none selects all but those of PEER libraries.
    """
    workers = threading.local()
    pools: list[Pool] = []

    def check(case: Case, able: Sequence[Implementation]) -> list[dict[str, Any]]:
        if not hasattr(workers, "pool"):
            workers.pool = Pool(where)
            pools.append(workers.pool)
        return [ask(workers.pool, case, each, timeout_s) for each in able]

    waiting = []
    try:
        with ThreadPoolExecutor(jobs) as executor:
            for operation in operations:
                available = [
                    each
                    for each in builtin.implementations(operation)
                    if (any(fnmatchcase(each.name, pattern) for pattern in patterns) if patterns else each.peer is None)
                    and each.obstacle(where) is None
                ]
                for case in cases(operation, where.type, families):
                    able = [each for each in available if each.obstacle(where, case) is None]
                    waiting.append((case, able, executor.submit(check, case, able)))
            for case, able, future in waiting:
                for implementation, answer in zip(able, future.result(), strict=True):
                    yield to_ratio(where, case, implementation, answer)
    finally:
        for pool in pools:
            pool.discard()


def ask(pool: Pool, case: Case, implementation: Implementation, timeout_s: float) -> dict[str, Any]:
    """Ask a worker to check one implementation on one case, and return its answer."""
    try:
        reply = pool.ask(CheckRequest(case, implementation.reference, 0), timeout_s=timeout_s)
    except SuiteError as error:
        return {"status": "error", "reason": str(error)}
    return {"status": "error", "reason": reply.reason} if isinstance(reply, Failed) else asdict(reply)


def to_ratio(where: Device, case: Case, implementation: Implementation, answer: Mapping[str, Any]) -> Ratio:
    """Convert a worker's answer to a `Ratio`."""
    status = answer["status"]
    why = known(case.operation, implementation.name, case, where.type) if status in ("wrong", "error") else ""
    return Ratio(
        case.operation, case.label, case.dtype, case.precision, implementation.name, status, answer.get("error_ratio"),
        answer.get("reason", ""), why,
    )  # fmt: skip


def gallery(where: Device, operations: Sequence[str]) -> Iterator[Refusal]:
    """Check the wrong kernels that run on this device in this process, as the tests of the gallery do."""
    import torch
    import wrong_kernels

    from suite.checking.check import check
    from suite.checking.problem import Problem

    for name in frameworks.names():
        frameworks.get(name).prepare(where)
    for entry in wrong_kernels.entries():
        adapter = frameworks.get(entry.framework)
        device = where if where.type in adapter.devices else Device(adapter.devices[0])
        if entry.operation not in operations or adapter.missing(device) or (entry.wrong.gpu and where.type != "cuda"):
            continue
        problem = Problem(entry.case, 3, torch.device(device.type, 0) if device.type == "cuda" else torch.device("cpu"))
        found = check(
            lambda entry=entry: entry.make(entry.mistake),
            adapter,
            problem,
            claims_determinism=entry.wrong.deterministic,
        )
        yield Refusal(entry.operation, entry.name, entry.wrong.about, found.agrees, found.error_ratio, found.reason)


def shown(ratios: Iterable[Ratio]) -> Iterator[Ratio]:
    """Print the ratios that do not pass, and yield all."""
    for each in ratios:
        if not each.passed:
            identity = each.operation, each.case, each.dtype, each.precision, each.implementation
            print(*identity, each.status, each.error_ratio, each.reason, flush=True)
        yield each


def write(
    folder: Path, operation: str, ratios: Sequence[Ratio], refusals: Sequence[Refusal], environment: Mapping[str, Any]
) -> None:
    """Write the files of an operation, and the folder's overview again."""
    own = folder / operation
    write_atomically(own / "error_ratios.csv", to_csv(ratios, Ratio))
    write_atomically(own / "error_ratios.md", markdown(ratios, refusals, environment))
    if refusals:
        write_atomically(own / "wrong_kernels.csv", to_csv(refusals, Refusal))
    write_atomically(folder / "README.md", overview(folder))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--op", action="append", choices=ops.alone(), help="operation; may be repeated; default: all")
    parser.add_argument("--impl", action="append", help="implementations, as a pattern; default: all but peers")
    parser.add_argument("--inputs", action="append", help="family, or `sweep`; default: all but `huge`")
    parser.add_argument("--device", help="cpu, cuda or cuda:INDEX; default: the first GPU, or the CPU")
    parser.add_argument("--timeout", type=float, default=120.0, help="seconds for the first call of an implementation")
    parser.add_argument("--jobs", type=int, default=1, help="cases that are checked at the same time")
    parser.add_argument("--no-gallery", action="store_true", help="leave tests/wrong_kernels out")
    parser.add_argument("--out", type=Path, help="folder of the files; default: none are written")
    options = parser.parse_args(arguments)
    try:
        where = resolve(options.device)
    except SuiteError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    operations = options.op or ops.alone()
    environment = hardware.environment_record(where.type, where.index)
    ratios: list[Ratio] = []
    refusals: list[Refusal] = []
    measured = measure(where, operations, options.impl or [], options.inputs or [], options.timeout, options.jobs)
    for operation, found in groupby(measured, key=lambda each: each.operation):
        mine = list(shown(found))
        wrong = [] if options.no_gallery else list(gallery(where, [operation]))
        ratios += mine
        refusals += wrong
        if options.out is not None:
            write(options.out, operation, mine, wrong, environment)
    passed, text = verdict(ratios, refusals)
    for each in groups(ratios):
        print(f"{each.operation:12} {each.dtype:9} {each.precision:5} {each.implementation:20} {each.count:4}  "
              f"{each.median:.3f}  {each.nearly_all:.3f}  {each.largest:.3f}  {each.where}")  # fmt: skip
    print(text)
    return 0 if passed else 1


if __name__ == "__main__":
    raise SystemExit(main())
