"""Calls the file of an exercise in this process, as `compare --with` calls a file, and gives a verdict."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from suite.exercises.catalogue import Exercise
from suite.exercises.gap import gap, is_empty, words
from suite.hardware.device import Device
from suite.problem.case import Case
from suite.problem.operation import Operation

if TYPE_CHECKING:  # imports torch, which must happen after the frameworks are prepared for the device
    import torch

    from suite.external.implementation import ExternalImplementation

SEED = 0


class Outcome(StrEnum):
    PASS = "pass"
    WRONG = "wrong"
    EMPTY = "empty"


@dataclass(frozen=True)
class Verdict:
    """The outcome of a file, its reason, and a hint if it is wrong."""

    outcome: Outcome
    reason: str = ""
    hint: str = ""


HINTS = (
    (r"race: .* of another block ", "blocks run in any order, and no barrier orders them:"),
    (r"race: ", "two threads touch the same shared memory and no barrier orders them: which thread waits for which?"),
    (
        r"\b(?:reads|writes|loads|stores) (?:index|byte) ",
        "an offset is wrong, or elements beyond the end are not skipped:",
    ),
    (
        r"'int' object is not iterable|Unsupported ptr type|cannot cast \[",
        "tl.load(pointers) reads values, tl.store(pointers, values) writes them; a pointer plus offsets is a block of "
        "pointers, and a pointer has no [index]",
    ),
    (r"^(?:Syntax|Indentation|Name)Error", "Python names the line: look at its names, brackets and indentation"),
    (r"is no multiple of", "a vector begins at a multiple of its size: does the index count vectors, or elements?"),
    (r"is no memory of the device", "a kernel can use memory of the device alone: is an index far off?"),
    (r"process died", "an index far outside of an array ruins memory: look at the offsets and masks of all stores"),
    (
        r"did not finish|waits? ",
        "a loop does not end (JAX unrolls a Python loop), or threads wait for others that never reach the barrier",
    ),
    (r"does not compile", "the compiler names line and column"),
    (r"^aliases input", "the file returns an argument as it is: what becomes of the computed array?"),
    (r"is a function,", "a function was made and not called"),
    (r"is a NoneType", "the function ends without `return`"),
    (
        r"^shape: |^dtype: |^type: ",
        "the text at the top of the file states shape and type of the result:",
    ),
    (r"wrote outside|inputs changed", "a store goes to a place that is not this thread's or program's"),
)
"""Hints by kind of fault: the first whose pattern the reason has. The exercise's own hint follows a text that ends with
a colon, and is the hint for all other faults."""


def hint_for(reason: str, exercise: Exercise) -> str:
    """Help for a file that is wrong for this reason."""
    kind = next((text for pattern, text in HINTS if re.search(pattern, reason)), "")
    return f"{kind} {exercise.hint}".strip() if kind.endswith(":") or not kind else kind


def first_message(reason: str) -> str:
    """The reason. A compiler's messages are cut to the first error, without the code that it quotes."""
    found = re.search(r"\S+:\d+:\d+: error: (?:(?! \d+ \| ).)*", reason)
    return f"does not compile: {found[0]}" if found and reason.startswith("BuildError") else reason


def judge(exercise: Exercise, path: Path, device: Device) -> Verdict:
    """The verdict on the file `path`.

    Raises `UsageError` for a file that cannot be read, and `SuiteError` if a framework or a compiler is missing.
    """
    from suite.external.source import contents_of

    text = contents_of(path).decode("utf-8", "replace")
    if is_empty(text, exercise.file.suffix):
        found = gap(text)
        todo = f"line {found.line}: {found.task}" if found else f"write {exercise.operation}"
        return Verdict(Outcome.EMPTY, f"the gap between TODO and END is empty; {todo}")
    reason = next(_faults(exercise, path, text, device), "")
    return Verdict(Outcome.WRONG, reason, hint_for(reason, exercise)) if reason else Verdict(Outcome.PASS)


def _faults(exercise: Exercise, path: Path, text: str, device: Device) -> Iterator[str]:
    """The faults of a file, one case after the other, and then the lack of the exercise's idea.

    Each call checks accesses to memory, if the framework can.
    """
    import torch

    from suite import custom
    from suite.core.errors import SuiteError
    from suite.custom.file import source_of
    from suite.external import source
    from suite.external.implementation import ExternalImplementation

    op = custom.find(source_of(exercise.reference, "reference"))
    implementation = ExternalImplementation.from_file(source.read(path), op)
    if implementation.fault:
        yield implementation.fault
        return
    if (obstacle := implementation.obstacle(device)) is not None:
        raise SuiteError(f"{exercise.name}: {obstacle[1]}")
    where = torch.device(device.type, 0) if device.type == "cuda" else torch.device("cpu")
    cases = _cases(exercise, op)
    for case in cases:
        reason = _fault(implementation.for_case(case), case, device, where)
        if reason:
            yield f"{reason} ({case.label})"
    code = words(text, exercise.file.suffix)
    if missing := [word for word in exercise.uses if word not in code]:
        yield f"the results are right, but the file does not use {', '.join(f'`{word}`' for word in missing)}"
    if found := [word for word in exercise.avoids if word in code.split()]:
        yield f"the results are right, but the file uses {', '.join(f'`{word}`' for word in found)}"
    if exercise.at_most and device.type == "cpu":
        yield from _excesses(exercise, implementation.for_case(cases[0]), cases[0], where)


def _excesses(
    exercise: Exercise, implementation: ExternalImplementation, case: Case, where: torch.device
) -> Iterator[str]:
    """The counts of one call that are larger than the exercise allows, if the compiler can count."""
    from cuda_ref.build.compiler import can_check
    from suite.checking.problem import Problem

    if not can_check():
        return
    problem = Problem(case, SEED, where)
    function = implementation.function_for(case, len(problem.buffers))
    counts = implementation.adapter.counts(lambda: function(*problem.buffers))
    for name, most in exercise.at_most:
        count = counts[f"count_{name}"]
        if count is not None and count > most:
            yield f"the results are right, but {name.replace('_', ' ')}: {count:,}, where {most:,} do ({case.label})"


def _cases(exercise: Exercise, op: Operation) -> list[Case]:
    shapes = [shape for text in exercise.shapes for shape in op.parse_shapes(text)]
    cases = [op.case(shape, dtype) for shape in shapes for dtype in op.dtypes] or op.default_cases("cpu")
    return [case for case in cases if not exercise.dtype or case.dtype == exercise.dtype]


def _fault(implementation: ExternalImplementation, case: Case, device: Device, where: torch.device) -> str:
    """The fault on one case; empty if there is none."""
    from suite.checking.check import check
    from suite.checking.problem import Problem

    problem = Problem(case, SEED, where)
    adapter = implementation.adapter
    try:
        with adapter.checks_memory(device):
            found = check(lambda: implementation.function_for(case, len(problem.buffers)), adapter, problem)
    except Exception as error:
        return first_message(implementation.describe_error(error, device.type))
    return found.explanation if not found.agrees else ""
