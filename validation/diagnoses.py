"""Measures the share of right diagnoses of wrong results, on the gallery of wrong kernels and their right twins.

    python validation/diagnoses.py                           # every wrong kernel that this machine can run
    python validation/diagnoses.py --op matmul --markdown    # counts by operation, each kernel's diagnosis

A diagnosis is right if it names the mistake in tests/wrong_kernels/diagnoses.py, and false if it names another one.
Kernels that are refused for their form (shape, dtype, memory and others) have no values to compare, and operations
without a file in suite/variants have no variants: both are left out. Exit status: 0 if at least 80% are right, none is
false and no right kernel has a diagnosis, else 1; 2 for an unknown device.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]  # tests/ has the gallery of wrong kernels

from suite import frameworks, ops, variants  # noqa: E402
from suite.core.errors import SuiteError  # noqa: E402
from suite.hardware.device import Device, resolve  # noqa: E402
from suite.results.render import pipe_table, plain  # noqa: E402

MIN_RIGHT_SHARE = 0.8
VALUES = ("value", "not finite")
RIGHT, NONE, FALSE = "right", "none", "false"


@dataclass(frozen=True)
class DiagnosedKernel:
    """One wrong kernel: its mistake, its diagnosis, and whether that is right. twin: diagnosis of the right kernel."""

    operation: str
    name: str
    about: str
    text: str
    expected: str
    twin: str

    @property
    def outcome(self) -> str:
        said = self.text.removeprefix("as if ")
        if not said:
            return NONE
        return RIGHT if self.expected and said.startswith(self.expected) else FALSE


def gallery(where: Device, operations: Sequence[str]) -> Iterator[DiagnosedKernel]:
    """Yield the wrong kernels whose values are wrong and that run on this device."""
    import torch
    import wrong_kernels
    from wrong_kernels import diagnoses

    from suite.checking.check import check
    from suite.checking.problem import Problem

    expected = diagnoses.SAID | diagnoses.GPU
    for name in frameworks.names():
        frameworks.get(name).prepare(where)
    for entry in wrong_kernels.entries():
        adapter = frameworks.get(entry.framework)
        device = where if where.type in adapter.devices else Device(adapter.devices[0])
        if entry.operation not in operations or adapter.missing(device) or (entry.wrong.gpu and where.type != "cuda"):
            continue
        if entry.wrong.verdict not in VALUES or variants.find(entry.operation) is None:
            continue
        problem = Problem(entry.case, 3, torch.device(device.type, 0) if device.type == "cuda" else torch.device("cpu"))
        texts = [
            check(lambda entry=entry, mistake=mistake: entry.make(mistake), adapter, problem).diagnosis
            for mistake in (entry.mistake, "")
        ]
        yield DiagnosedKernel(
            entry.operation, entry.name, entry.wrong.about, texts[0], expected.get(entry.name, ""), texts[1]
        )


def tables(found: Sequence[DiagnosedKernel]) -> str:
    """Format the counts by operation, and every wrong kernel with its diagnosis, as Markdown."""
    groups = [(name, [each for each in found if each.operation == name]) for name in ops.alone()]
    counts = [
        [name, str(len(group)), *(str(Counter(each.outcome for each in group)[kind]) for kind in (RIGHT, NONE, FALSE)),
         str(sum(bool(each.twin) for each in group))]
        for name, group in [*groups, ("all", list(found))]
        if group
    ]  # fmt: skip
    heads = ["operation", "wrong kernels", "right", "none", "false", "right kernels with a diagnosis"]
    each_one = [[plain(each.name), plain(each.about), plain(each.text) or "(none)"] for each in found]
    return "\n\n".join(
        (
            pipe_table(heads, counts, right=set(heads[1:])),
            pipe_table(["wrong kernel", "what is wrong", "diagnosis"], each_one, right=set()),
        )
    )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--op", action="append", choices=ops.alone(), help="operation; may be repeated; default: all")
    parser.add_argument("--device", help="cpu, cuda or cuda:INDEX; default: the first GPU, or the CPU")
    parser.add_argument("--markdown", action="store_true", help="print the tables")
    options = parser.parse_args(arguments)
    try:
        where = resolve(options.device)
    except SuiteError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    found = []
    for each in gallery(where, options.op or ops.alone()):
        found.append(each)
        if not options.markdown:
            print(f"{each.outcome:5}  {each.name:52} {each.text}", flush=True)
    if options.markdown:
        print(tables(found))
    counts = Counter(each.outcome for each in found)
    twins = sum(bool(each.twin) for each in found)
    passed = counts[RIGHT] >= MIN_RIGHT_SHARE * len(found) and not counts[FALSE] and not twins
    print(
        f"\n{'passed' if passed else 'not passed'}: of {len(found)} wrong kernels {counts[RIGHT]} right "
        f"(at least {MIN_RIGHT_SHARE:.0%}), {counts[NONE]} none, {counts[FALSE]} false; "
        f"{twins} right kernels with a diagnosis"
    )
    return 0 if passed else 1


if __name__ == "__main__":
    raise SystemExit(main())
