"""Every wrong kernel of the gallery is refused and named for what is wrong with it; its right twin passes the case."""

from __future__ import annotations

import ast
import os
from collections import Counter
from collections.abc import Collection, Iterable
from functools import lru_cache

import pytest
import torch
import wrong_kernels
from judging import RIGHT
from kept_variants import keeping
from thinning import covering_parts, thorough_unless
from wrong_kernels import Entry, diagnoses

from suite import frameworks, ops, variants
from suite.checking import candidates, diagnosis
from suite.checking.check import CheckResult, check
from suite.checking.problem import Problem
from suite.frameworks.base import Adapter
from suite.hardware.device import Device
from suite.problem.case import Case

GALLERY = wrong_kernels.entries()
FIND = keeping(variants.find)


@lru_cache(maxsize=32)
def problem(case: Case, device: str) -> Problem:
    return Problem(case, 3, torch.device(device))


def run(entry: Entry, mistake: str, device: str) -> CheckResult:
    adapter: Adapter = frameworks.get(entry.framework)
    if device not in adapter.devices:
        device = adapter.devices[0]
    missing = adapter.missing(Device(device))
    if missing is not None:
        pytest.skip(missing)
    where = "cuda:0" if device == "cuda" else device
    claims = entry.wrong.deterministic
    return check(lambda: entry.make(mistake), adapter, problem(entry.case, where), claims_determinism=claims)


def said(entry: Entry) -> str:
    """The expected beginning of the diagnosis; empty if it must name nothing."""
    return (diagnoses.SAID | diagnoses.GPU).get(entry.name, diagnoses.NONE)


def params(entries: Iterable[Entry], kept: Collection[str]) -> list[object]:
    """The parameter sets of the mistakes. Those of a GPU, and all on a GPU, are in `make test`."""
    found = []
    for each in entries:
        gpu = [pytest.mark.gpu] if each.wrong.gpu else []
        marks = gpu or thorough_unless(each.name in kept or bool(os.environ.get("SUITE_TEST_GPU")))
        found.append(pytest.param(each, id=each.name, marks=marks))
    return found


def parts(entry: Entry) -> set[tuple[str, ...]]:
    """Return what a mistake covers: the operation and the verdict, each with the framework."""
    return {(entry.framework, entry.operation), (entry.framework, entry.wrong.verdict)}


def chosen(entries: Iterable[Entry]) -> set[str]:
    """The names of the mistakes of `make test` on a CPU: fewer, with every part of all."""
    here = {entry.name: entry for entry in entries if not entry.wrong.gpu}
    return {*covering_parts([*here], lambda name: parts(here[name]))}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "entry" in metafunc.fixturenames:
        entries = twins() if "twin" in metafunc.function.__name__ else GALLERY
        metafunc.parametrize("entry", params(entries, chosen(entries)))


def test_fewer_mistakes_have_every_operation_and_verdict_of_each_framework() -> None:
    few, all_ = ([entry for entry in GALLERY if not entry.wrong.gpu] for _ in range(2))
    few = [entry for entry in few if entry.name in chosen(all_)]
    assert len(few) < len(all_)
    assert set().union(*map(parts, few)) == set().union(*map(parts, all_))


def test_a_wrong_kernel_is_refused_for_what_is_wrong(
    entry: Entry, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(candidates.variants, "find", FIND)
    if not said(entry):  # the search for a name ends with its time; another mistake's name would be found early
        monkeypatch.setattr(diagnosis, "BUDGET_S", 0.5)
    found = run(entry, entry.mistake, device)
    assert not found.agrees, f"{entry.wrong.about}: passes with {found.error_ratio:.3g}"
    assert found.reason.startswith(f"{entry.wrong.verdict}: "), found.reason
    if entry.wrong.verdict == "value":
        assert found.error_ratio > 1
    if variants.find(entry.operation) and (device == "cpu" or found.diagnosis):
        assert found.diagnosis.removeprefix("as if ").startswith(said(entry)), found.diagnosis
        assert bool(found.diagnosis) == bool(said(entry))


def twins() -> list[Entry]:
    """One mistake for each case and claim of a file: the right twin of the others is the same call."""
    found = {(e.module.__name__, e.case, e.wrong.deterministic, e.wrong.gpu): e for e in reversed(GALLERY)}
    return [*reversed(found.values())]


def test_its_right_twin_passes(entry: Entry, device: str) -> None:
    found = run(entry, "", device)
    assert found.agrees, found.reason
    assert found.error_ratio < RIGHT
    assert not found.diagnosis
    assert not found.error_map


FACTORIES = {"arange", "empty", "eye", "full", "linspace", "ones", "rand", "randint", "randn", "tensor", "zeros"}


def test_tensors_of_torch_files_are_made_on_a_named_device() -> None:
    """A tensor that is made without one is on the CPU, where the inputs on a GPU are not."""
    for path in sorted(wrong_kernels.FOLDER.glob("torch_*.py")):
        for call in (each for each in ast.walk(ast.parse(path.read_text())) if isinstance(each, ast.Call)):
            if ast.unparse(call.func).removeprefix("torch.") in FACTORIES:
                assert any(each.arg == "device" for each in call.keywords), f"{path.name}:{call.lineno}"


def test_the_gallery_is_large_and_covers_every_framework() -> None:
    assert len(GALLERY) >= 80
    per_framework = Counter(entry.framework for entry in GALLERY)
    assert set(per_framework) == set(frameworks.names())
    assert min(per_framework[name] for name in ("triton", "jax", "cuda", "torch")) >= 15
    assert all("\n" not in entry.wrong.about for entry in GALLERY), "one line that says what it is"
    kinds = {entry.wrong.verdict for entry in GALLERY}
    assert kinds == {
        "value",
        "not finite",
        "shape",
        "dtype",
        "device",
        "strides",
        "unfinished",
        "type",
        "inputs changed",
        "aliases input",
        "same buffer",
        "not deterministic",
    }


def test_most_mistakes_in_values_are_named() -> None:
    """The test above asserts that each is named so, and that what is not here is not named. An operation needs no
    variants of its truth; without them it has no part in this."""
    by_value = [
        entry
        for entry in GALLERY
        if entry.wrong.verdict in ("value", "not finite") and not entry.wrong.gpu and variants.find(entry.operation)
    ]
    assert {entry.name for entry in by_value} <= diagnoses.SAID.keys(), "wrong_kernels/diagnoses.py lacks a kernel"
    named = [entry for entry in by_value if said(entry)]
    assert len(named) >= 0.8 * len(by_value)


@pytest.mark.parametrize("operation", sorted({entry.operation for entry in GALLERY}))
def test_an_operation_with_a_gallery_has_enough_of_it(operation: str) -> None:
    """An operation needs no gallery. One that declares it, by a file here, shows all the mistakes that are typical."""
    assert operation in ops.names()
    assert sum(entry.operation == operation for entry in GALLERY) >= 12
