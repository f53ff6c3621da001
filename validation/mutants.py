"""Measures the telling cases: derives wrong kernels from those of NumPy and torch, and counts those that are caught.

    python -m validation.mutants --op all
    python -m validation.mutants --op softmax --op sum --sample 30
    python -m validation.mutants --op attention_grad --dtype float8_e4m3fn
    python -m validation.mutants --op all --device cuda
    python -m validation.mutants --op attention --shard 1/4   # a quarter of the mutants

Each mutant goes through the check of a plain `compare`: the operation's default cases, then its telling cases, in each
dtype, up to the first that is wrong. A mutant that raises in a default case is no kernel and is left out. One that
ends the process, or after which the GPU answers no more, is caught.
A GPU judges those of the torch implementation, with the default cases of a CPU: they are smaller, and catch less.
`validation/mutation/equivalent.py` lists mutants that compute the same, or what the contract allows, with the reason.
An implementation that is refused without a change is reported: nothing is known of its mutants then.
Exit status: 0 if none is refused and at least 98% of the other mutants are caught in each operation, else 1.
"""

from __future__ import annotations

import argparse
import multiprocessing
import random
import signal
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).resolve().parents[1])]

import torch  # noqa: E402

from suite import ops  # noqa: E402
from suite.checking import diagnosis  # noqa: E402
from suite.checking.check import check  # noqa: E402
from suite.checking.problem import Problem, Problems  # noqa: E402
from suite.checking.telling_cases import probe  # noqa: E402
from suite.implementations import builtin  # noqa: E402
from suite.implementations.implementation import Implementation  # noqa: E402
from suite.numerics.formats import DTYPES, DTYPES_BEYOND  # noqa: E402
from suite.problem.case import Case  # noqa: E402
from validation.mutation import Mutant, source, wrapped  # noqa: E402
from validation.mutation.equivalent import reason_of  # noqa: E402
from validation.shard import WHOLE, Shard  # noqa: E402

LINES = ("torch", "numpy")
MIN_SCORE = 0.98
SECONDS = 20.0
"""Processor time in which a mutant's calls in one case must end."""
CPU = torch.device("cpu")


class NotAKernelError(Exception):
    """The mutant raises in a default case."""


def all_mutants(operation: str) -> list[Mutant]:
    """Return the mutants of an operation: by the source of both kernels, and by operands and results of torch's."""
    op, lines = ops.get(operation), {each.name: each for each in builtin.implementations(operation)}
    found = list(wrapped.mutants(op, "torch", lines["torch"].function))
    for name in LINES:
        found += source.mutants(operation, name, lines[name].load())
    return found


def unchanged(operation: str) -> list[Mutant]:
    """Return the implementations that mutants are made of, as they are."""
    return [Mutant(operation, line, "the line itself", builtin.find(operation, line).function) for line in LINES]


@dataclass
class Judge:
    """Judges the mutants of one operation as a plain `compare` judges a file, and keeps the truths."""

    operation: str
    device: torch.device = CPU
    dtype: str = ""
    """The only dtype of the cases; empty for those of the default cases."""
    defaults: dict[Case, Problem] = field(default_factory=dict)
    telling: dict[tuple[str, str], Mapping[str, Problem]] = field(default_factory=dict)

    def complaint(self, mutant: Mutant) -> str:
        """Return what is wrong with a mutant; empty if nothing is. Raises `NotAKernelError`."""
        op, adapter = ops.get(self.operation), _line(mutant).adapter
        function = mutant.make()
        cases = op.plain_cases("cpu", [self.dtype]) if self.dtype in op.dtypes_beyond else op.default_cases("cpu")
        cases = [case for case in cases if self.dtype in ("", case.dtype)]
        for case in cases:
            problem = self.defaults.get(case) or self.defaults.setdefault(case, Problem(case, 0, self.device))
            try:
                with limited():
                    result = check(lambda: function, adapter, problem)
            except TimeoutError:
                return "does not end"
            except Exception as error:
                raise NotAKernelError(str(error)) from error
            if not result.agrees:
                return result.reason
        for dtype, precision in dict.fromkeys((case.dtype, case.precision) for case in cases):
            if (dtype, precision) not in self.telling:
                cases = op.telling_cases(dtype, precision, device_type=self.device.type)
                self.telling[dtype, precision] = Problems(cases, lambda each: Problem(each, 0, self.device))
            try:
                with limited() as restart:
                    found = probe(lambda case, f=function: f, adapter, self.telling[dtype, precision], on_case=restart)
            except Exception as error:
                return f"{type(error).__name__}: {error}"
            if found.reason:
                return found.reason
        return ""


def _line(mutant: Mutant) -> Implementation:
    return builtin.find(mutant.operation, mutant.line)


@contextmanager
def limited() -> Iterator[Callable[[str], None]]:
    """Raise `TimeoutError` after SECONDS. Yields a function that begins again, at a case of this name."""

    def end(number: int, frame: Any) -> None:
        raise TimeoutError

    def restart(name: str = "") -> None:
        signal.setitimer(signal.ITIMER_PROF, SECONDS)

    before = signal.signal(signal.SIGPROF, end)
    restart()
    try:
        yield restart
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        signal.signal(signal.SIGPROF, before)


@dataclass
class Score:
    """The mutants of an operation by outcome; survivors are neither caught nor known to be equivalent."""

    caught: int = 0
    equivalent: list[tuple[Mutant, str]] = field(default_factory=list)
    survivors: list[Mutant] = field(default_factory=list)

    @property
    def share(self) -> float:
        judged = self.caught + len(self.survivors)
        return self.caught / judged if judged else 1.0


def complaints(
    operation: str, mutants: Sequence[Mutant], device: torch.device, dtype: str
) -> Iterator[tuple[Mutant, str]]:
    """Yield the mutants that are kernels, each with what is wrong with it.

    Another process judges them, and a new one the rest if a mutant ends it.
    """
    fork, left = multiprocessing.get_context("fork"), list(mutants)
    while left:
        receiving, sending = fork.Pipe(duplex=False)
        child = fork.Process(target=_send_complaints, args=(operation, left, device, dtype, sending), daemon=True)
        child.start()
        sending.close()
        with suppress(EOFError):
            while left:
                said = receiving.recv()
                mutant = left.pop(0)
                if said is not None:
                    yield mutant, said
        child.join()
        if left:
            yield left.pop(0), f"ends the process with status {child.exitcode}"


def _send_complaints(
    operation: str, mutants: Sequence[Mutant], device: torch.device, dtype: str, sending: Connection
) -> None:
    """Send what is wrong with each mutant, None for one that is no kernel."""
    torch.set_num_threads(1)  # the problems are small, and threads do not survive a fork
    judge = Judge(operation, device, dtype)
    for mutant in mutants:
        try:
            said = judge.complaint(mutant)
        except NotAKernelError:
            said = None
        if device.type == "cuda":
            torch.cuda.synchronize()  # raises if an index beyond a tensor has ended the context
        sending.send(said)


def score(
    operation: str,
    mutants: Sequence[Mutant],
    report: Callable[[Mutant, str], None] = lambda mutant, said: None,
    device: torch.device = CPU,
    dtype: str = "",
) -> Score:
    """Judge mutants of one operation. report: is called with each mutant and its fault. dtype: see `Judge`."""
    found = Score()
    for mutant, said in complaints(operation, mutants, device, dtype):
        report(mutant, said)
        if said:
            found.caught += 1
        elif reason := reason_of(mutant, dtype):
            found.equivalent.append((mutant, reason))
        else:
            found.survivors.append(mutant)
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--op", action="append", choices=(*ops.alone(), "all"), required=True, help="may be repeated")
    parser.add_argument("--sample", type=int, default=0, help="judge so many mutants of each operation; default: all")
    parser.add_argument("--shard", type=Shard.parse, default=WHOLE, help="2/4: the second quarter of the mutants")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="where mutants run (cpu)")
    parser.add_argument("--dtype", default="", choices=(*DTYPES, *DTYPES_BEYOND), help="cases of this dtype alone")
    parser.add_argument("--verbose", action="store_true", help="print what is said of each mutant")
    options = parser.parse_args(arguments)
    warnings.simplefilter("ignore")
    diagnosis.BUDGET_S = 0.0  # reasons are not measured here

    def report(mutant: Mutant, said: str) -> None:
        if options.verbose:
            print(f"{mutant.operation} {mutant.line} {mutant.name}: {said or 'ok'}", flush=True)

    passed = True
    for name in ops.alone() if "all" in options.op else options.op:
        mutants, right, begin = all_mutants(name), unchanged(name), time.monotonic()
        if options.device == "cuda":
            mutants, right = ([each for each in some if each.line == "torch"] for some in (mutants, right))
        if options.sample:
            mutants = random.Random(0).sample(mutants, min(options.sample, len(mutants)))
        mutants, right = options.shard.of(mutants), options.shard.of(right)
        found = score(name, mutants, report, torch.device(options.device), options.dtype)
        said = complaints(name, right, torch.device(options.device), options.dtype)
        refused = [(line, what) for line, what in said if what]
        passed &= found.share >= MIN_SCORE and not refused
        print(
            f"{name}: {found.caught} caught, {len(found.survivors)} survived, {len(found.equivalent)} equivalent, "
            f"score {found.share:.3f}, {time.monotonic() - begin:.0f} s",
            flush=True,
        )
        for line, what in refused:
            print(f"    refused, though it is right: {line.line}: {what}")
        for mutant in found.survivors:
            print(f"    survived: {mutant.line}: {mutant.name}")
        for mutant, reason in found.equivalent:
            print(f"    equivalent: {mutant.line}: {mutant.name}: {reason}")
    return 0 if passed else 1


if __name__ == "__main__":
    raise SystemExit(main())
