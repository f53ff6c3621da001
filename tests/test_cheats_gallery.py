"""The gallery of cheats itself: complete, of every kind, read without being run, and honest in each first call."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import cheats
import pytest
from cheats import Cheat

from suite import ops
from suite.external import source

CHEATS, TWINS = cheats.cheats(), cheats.twins()
EVERY = [*CHEATS, *TWINS]
each = pytest.mark.parametrize("cheat", [pytest.param(cheat, id=cheat.name) for cheat in EVERY])


def test_the_gallery_is_large_and_has_every_kind() -> None:
    kinds = Counter(cheat.kind for cheat in CHEATS)
    assert len(CHEATS) >= 140
    assert len(TWINS) >= 40
    assert set(kinds) == set(cheats.KINDS)
    assert min(kinds.values()) >= 5, kinds
    assert sum(cheat.gpu for cheat in CHEATS) >= 30
    assert sum(twin.gpu for twin in TWINS) >= 6


def test_names_differ_since_a_row_is_called_by_them() -> None:
    names = Counter(cheat.name for cheat in EVERY)
    assert max(names.values()) == 1, names


def test_every_twin_has_a_cheat_that_it_looks_like() -> None:
    by_name = {cheat.name: cheat for cheat in CHEATS}
    for twin in TWINS:
        assert twin.twin_of in by_name, twin.name
        cheat = by_name[twin.twin_of]
        assert (twin.operation, twin.gpu, twin.shape) == (cheat.operation, cheat.gpu, cheat.shape), twin.name


@each
def test_what_a_file_says_of_itself_is_complete(cheat: Cheat) -> None:
    assert cheat.about.endswith("."), cheat.about
    assert cheat.operation in ops.names()
    if not cheat.twin_of:
        assert cheat.kind in cheats.KINDS
        assert isinstance(cheat.expected, tuple)
        assert cheat.expected
        assert set(cheat.expected) <= {*cheats.STATUSES, *cheats.PHRASES}


@each
def test_the_suite_takes_the_file_for_a_kernel(cheat: Cheat) -> None:
    read = source.read(cheat.path)
    assert not read.fault
    assert cheat.operation in read.lines


@pytest.mark.parametrize("text", ["X = 1\n", '"""One.\n\nTwo."""\n', '"""One."""\nOPERATION = "matmul"\nGPU = False\n'])
def test_a_file_that_says_too_little_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "little.py"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=r"little\.py"):
        cheats.read(path)


@each
def test_the_readme_has_the_file(cheat: Cheat) -> None:
    lines = (cheats.FOLDER / "README.md").read_text(encoding="utf-8").splitlines()
    (line,) = [line for line in lines if line.startswith(f"| [{cheat.name}]")]
    assert cheat.about in line
    assert cheat.source in line
    assert ", ".join(cheat.expected) in line


def test_the_readme_says_for_each_kind_by_what_it_is_caught() -> None:
    lines = (cheats.FOLDER / "README.md").read_text(encoding="utf-8").splitlines()
    for kind in cheats.KINDS:
        assert sum(line.startswith(f"| {kind} | ") and len(line) > 40 for line in lines) == 1, kind


@pytest.mark.slow(seconds=10)
@pytest.mark.thorough
def test_a_cheat_is_honest_in_its_first_call(tmp_path: Path) -> None:
    """And a twin is in each. All of them in one run, in which each has a process of its own."""
    run = subprocess.run(
        [sys.executable, cheats.FOLDER / "_first_calls.py"],
        capture_output=True,
        text=True,
        check=True,
        timeout=240,
        env={**os.environ, "TMPDIR": str(tmp_path)},  # one cheat keeps a file there
    )
    found = json.loads(run.stdout)
    assert len(found) == sum(not cheat.gpu and cheat.path.suffix == ".py" for cheat in EVERY)
    assert {name: said for name, said in found.items() if said} == {}
