"""Every implementation of every operation agrees with float64 on every family of inputs, in every dtype."""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest
import torch
from known_limits import KNOWN
from thinning import THOROUGH, covering_parts

from suite import ops
from suite.checking import diagnosis
from suite.checking.calls import LocalCaller, RefusedError
from suite.checking.check import check, check_briefly
from suite.checking.problem import Problem
from suite.checking.repeats import Duration
from suite.implementations import builtin
from suite.implementations.implementation import Implementation
from suite.numerics.formats import DOUBLE, DTYPES
from suite.problem.case import Case
from suite.problem.option import Value
from suite.problem.shape import Shape

if TYPE_CHECKING:
    from suite.hardware.device import Device

RANGE = ("subnormal", "largest", "infinity", "large_logits", "shifted", "positive")
"""Families in which float16 differs from bfloat16 by more than its rounding."""


class Combination(NamedTuple):
    """One call of a test, by its parts. A family has several shapes; `choice` is the precision, and the options."""

    operation: str
    inputs: tuple[str, Shape]
    dtype: str
    choice: tuple[str, tuple[tuple[str, Value], ...]]
    implementation: str

    @property
    def case(self) -> Case:
        (family, shape), (precision, options) = self.inputs, self.choice
        dims = tuple(zip(ops.get(self.operation).dims, shape, strict=True))
        return Case(self.operation, dims, self.dtype, precision, options, family)


def combinations(*, on_gpu: bool) -> list[Combination]:
    """The calls of all tests. Tests of one family and dtype are neighbours.

    The family `normal` has the sizes for timing, and is left out; so are other libraries' kernels, and operations over
    several processes, which tests/ranks has. One family has float64 too.
    """
    found: list[Combination] = []
    for name in ops.alone():
        op = ops.get(name)
        skipped: dict[str, list[Combination]] = {}
        for family, kind in op.families.items():
            double = (DOUBLE,) if family == "strided" and DOUBLE in op.dtypes_beyond else ()
            wanted = {option.name for option in op.options if option.beyond and option.name in kind.options}
            takers = [x for x in builtin.implementations(name) if x.peer is None and wanted <= {*x.options_beyond}]
            cases = op.cases(family, "cuda" if on_gpu else "cpu", more=double)
            for dtype in (*kind.dtypes, *double) if family != "normal" else ():
                if dtype == "float16" and family not in RANGE and not on_gpu:
                    continue  # on a CPU float16 takes the way of bfloat16; a GPU runs both
                for each in takers if dtype in DTYPES else (x for x in takers if dtype in x.dtypes_beyond):
                    of_test = [
                        Combination(name, (family, case.shape), dtype, (case.precision, case.options), each.name)
                        for case in cases
                        if case.dtype == dtype
                    ]
                    if on_gpu or not (kind.needs_gpu or each.requires):
                        found += of_test
                    else:  # one test says why the others would be skipped
                        skipped.setdefault(family if kind.needs_gpu else each.name, of_test)
        found += [row for of_test in skipped.values() for row in of_test]
    return found


def parts(row: Combination) -> set[tuple[str, object]]:
    """The parts that `make test` covers: each implementation with all dtypes and all options.

    Each in Triton and CUDA also with all inputs; in another framework any of its implementations with all families.
    """
    framework, (family, _) = row.implementation.partition("/")[0], row.inputs
    inputs = (row.implementation, row.inputs) if framework in ("triton", "cuda") else (framework, family)
    return {(row.implementation, row.dtype), (row.implementation, row.choice), inputs}


def parts_of_repeats(row: Combination) -> set[tuple[str, object]]:
    """The parts that `make test` covers by tests that repeat the call: the framework with all families as well."""
    framework = row.implementation.partition("/")[0]
    return {(row.implementation, row.dtype), (row.implementation, row.choice), (framework, row.inputs[0])}


def needs_gpu(row: Combination) -> bool:
    family = ops.get(row.operation).families[row.inputs[0]]
    return family.needs_gpu or bool(builtin.find(row.operation, row.implementation).requires)


def chosen(rows: Sequence[Combination]) -> set[Combination]:
    """The calls of `make test` on a CPU: a covering set of each operation, and those that say why they are skipped."""
    kept = {row for row in rows if needs_gpu(row)}
    for _, of_operation in groupby((row for row in rows if row not in kept), lambda row: row.operation):
        kept.update(covering_parts([*of_operation], parts))
    return kept


def made_once(kept: Iterable[Combination]) -> set[Combination]:
    """The calls of emulated kernels that `make test` does not repeat with other inputs, and on a kept plan."""
    found: set[Combination] = set()
    emulated = (row for row in kept if not needs_gpu(row) and row.implementation.partition("/")[0] == "cuda")
    for _, of_operation in groupby(emulated, lambda row: row.operation):
        rows = [*of_operation]
        found.update({*rows}.difference(covering_parts(rows, parts_of_repeats)))
    return found


def calls_by_test(rows: Iterable[Combination]) -> dict[tuple[str, str, str, str], list[Combination]]:
    """The calls of each test: those with the same operation, family, dtype and implementation."""
    found: dict[tuple[str, str, str, str], list[Combination]] = {}
    for row in rows:
        found.setdefault((row.operation, row.inputs[0], row.dtype, row.implementation), []).append(row)
    return found


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    on_gpu = bool(os.environ.get("SUITE_TEST_GPU"))
    rows = combinations(on_gpu=on_gpu)
    kept = {*rows} if on_gpu else chosen(rows)
    once = set() if on_gpu else made_once(row for row in rows if row in kept)
    sets = []
    for (name, family, dtype, implementation), calls in calls_by_test(rows).items():
        marks = [pytest.mark.gpu] if ops.get(name).families[family].needs_gpu else []
        values = (builtin.find(name, implementation), family, dtype)
        test_id = f"{name}-{family}-{dtype}-{implementation}"
        few = [call for call in calls if call in kept]
        more = [call for call in calls if call not in kept or call in once]
        if few:
            sets.append(pytest.param(*values, few, once, id=test_id, marks=marks))
        if more:
            sets.append(pytest.param(*values, more, set(), id=f"{test_id}-more", marks=[*marks, THOROUGH]))
    metafunc.parametrize(("implementation", "family", "dtype", "calls", "once"), sets)


HUGE_BYTES = 100 * 10**9
"""Memory of two draws of inputs, their buffers, and the results that are compared, of 2^31 elements each."""


@lru_cache(maxsize=16)
def problem(case: Case, device: torch.device) -> Problem:
    return Problem(case, 1, device)


def complaint(implementation: Implementation, case: Case, where: Device, *, once: bool) -> str:
    """The fault of the implementation on this case; empty if there is none. `NotImplementedError` passes through.

    once: a single call, as an interpreter always makes: it is slow, and has none of the faults that further calls show:
    work on other streams, races, repeated launches.
    """
    load = lambda: getattr(implementation.load(), case.operation)  # noqa: E731
    huge = ops.get(case.operation).families[case.inputs].needs_gpu
    given = (problem.__wrapped__ if huge else problem)(case, torch.device(where.type))
    if once or implementation.adapter.mode(where) == "interpreted":
        try:
            reason, explained = check_briefly(LocalCaller(load, implementation.adapter, given), given, Duration())
            assert diagnosis.FAILED not in explained.text
        except RefusedError as refused:
            reason = str(refused)
    else:
        found = check(load, implementation.adapter, given)
        reason = found.reason
        assert diagnosis.FAILED not in found.diagnosis
    return f"{case.label} {case.precision}: {reason}" if reason else ""


@contextlib.contextmanager
def one_at_a_time() -> Iterator[None]:
    """Lets one of the test processes at a time run a family that takes most of the GPU's memory."""
    with (Path(tempfile.gettempdir()) / f"suite-huge-{os.getuid()}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        problem.cache_clear()
        torch.cuda.empty_cache()
        try:
            yield
        finally:
            torch.cuda.empty_cache()


@pytest.fixture(autouse=True)
def _brief_diagnoses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shortens diagnoses: the faults that are known here need no explanation."""
    monkeypatch.setattr(diagnosis, "BUDGET_S", 0.02)


def test_agrees_with_float64(
    where: Device,
    implementation: Implementation,
    family: str,
    dtype: str,
    calls: list[Combination],
    once: set[Combination],
) -> None:
    obstacle = implementation.obstacle(where)
    if obstacle is not None:
        pytest.skip(f"{obstacle[0]}: {obstacle[1]}")
    op = ops.get(implementation.operation)
    is_large = dtype == "float32" or bool(op.outputs)  # several results are joined, in memory of their own
    if op.families[family].needs_gpu and is_large and torch.cuda.mem_get_info()[1] < HUGE_BYTES:
        pytest.skip(
            f"a huge case in float32, or with several results, takes {HUGE_BYTES // 10**9} GB of the GPU's memory"
        )
    found, refused = [], set()
    with one_at_a_time() if op.families[family].needs_gpu else contextlib.nullcontext():
        for call in calls:
            try:
                found.append(complaint(implementation, call.case, where, once=call in once))
            except NotImplementedError as error:
                refused.add(str(error))
    wrong = [text for text in found if text]
    dtypes, why = KNOWN.get((where.type, op.name, implementation.name, family), ((), ""))
    if dtype in dtypes:
        has_all = len(calls) == sum(case.dtype == dtype for case in op.cases(family, where.type, more=(dtype,)))
        assert wrong or not has_all, f"this agrees now; remove it from KNOWN: {why}"
        if wrong:
            pytest.xfail(why)
    assert not wrong, "\n".join(wrong)
    if not found:
        pytest.skip(f"unsupported: {'; '.join(refused)}")
