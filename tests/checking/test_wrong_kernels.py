"""Every wrong kernel of the gallery is refused, for what is wrong with it; its right twin passes the same case."""

from __future__ import annotations

from collections import Counter
from functools import lru_cache

import pytest
import torch
import wrong_kernels
from judging import RIGHT
from wrong_kernels import Entry

from suite import frameworks, ops
from suite.checking.checked_call import Examination, Problem, examine
from suite.frameworks.base import Adapter
from suite.hardware.device import Device
from suite.problem.case import Case

GALLERY = wrong_kernels.entries()


@lru_cache(maxsize=2)
def problem(case: Case, device: str) -> Problem:
    return Problem(case, 3, torch.device(device))


def run(entry: Entry, mistake: str, device: str) -> Examination:
    adapter: Adapter = frameworks.get(entry.framework)
    if device not in adapter.devices:
        device = adapter.devices[0]
    missing = adapter.missing(Device(device))
    if missing is not None:
        pytest.skip(missing)
    where = "cuda:0" if device == "cuda" else device
    claims = entry.wrong.deterministic
    return examine(lambda: entry.make(mistake), adapter, problem(entry.case, where), claims_determinism=claims)


each = pytest.mark.parametrize(
    "entry", [pytest.param(e, id=e.name, marks=[pytest.mark.gpu] if e.wrong.gpu else []) for e in GALLERY]
)


@each
def test_a_wrong_kernel_is_refused_for_what_is_wrong(entry: Entry, device: str) -> None:
    found = run(entry, entry.mistake, device)
    assert not found.agrees, f"{entry.wrong.about}: passes with {found.error_ratio:.3g}"
    assert found.reason.startswith(f"{entry.wrong.verdict}: "), found.reason
    if entry.wrong.verdict == "value":
        assert found.error_ratio > 1


@each
def test_its_right_twin_passes(entry: Entry, device: str) -> None:
    found = run(entry, "", device)
    assert found.agrees, found.reason
    assert found.error_ratio < RIGHT


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


@pytest.mark.parametrize("operation", sorted({entry.operation for entry in GALLERY}))
def test_an_operation_with_a_gallery_has_enough_of_it(operation: str) -> None:
    """An operation needs no gallery. One that declares it, by a file here, shows all the mistakes that are typical."""
    assert operation in ops.names()
    assert sum(entry.operation == operation for entry in GALLERY) >= 12
