"""`python -m suite exercise`: the list, invalid arguments, the output of a verdict, a file that ends its process."""

from __future__ import annotations

from pathlib import Path

import pytest
from commands import call

from suite.exercises import apart, catalogue
from suite.exercises.apart import verdicts
from suite.exercises.catalogue import Exercise
from suite.exercises.judge import Outcome, Verdict

FIRST = catalogue.find("jax/01")
ENDS = """
import os, sys

framework = 'jax'

def silu(x):
    assert not {"torch._dynamo", "sympy"} & {*sys.modules}, "they were imported, which takes a second"
    os._exit(3)
"""


def test_the_list_has_every_exercise_below_its_chapter(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, "exercise") == 0
    listed = capsys.readouterr().out
    assert all(f"{each.name} " in listed and each.chapter in listed for each in catalogue.exercises())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["cuda/99"], "unknown 'cuda/99'; the nearest are"),
        (["cuda/0"], "cuda/01_copy, cuda/02_index"),
        (["cuda/03", "nothere.cu"], "no such file"),
        (["cuda/03", "--device", "tpu"], "tpu"),
    ],
)
def test_unusable_arguments_end_with_status_2(
    arguments: list[str], message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, "exercise", *arguments) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("verdict", "shown", "status"),
    [
        (Verdict(Outcome.PASS), ["pass: jax/01_arrays", "next: jax/02_broadcasting"], 0),
        (Verdict(Outcome.WRONG, "off by 2", "look at y"), ["wrong: jax/01_arrays: off by 2", "hint: look at y"], 1),
        (Verdict(Outcome.EMPTY, "nothing"), ["empty: jax/01_arrays: nothing", "docs/learn/jax/1_arrays.md"], 1),
    ],
)
def test_a_verdict_is_shown_with_what_to_do_next(
    verdict: Verdict, shown: list[str], status: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(apart, "verdicts", lambda asked, device: [verdict])
    assert call(monkeypatch, "exercise", "jax/01") == status
    printed = capsys.readouterr().out
    assert all(each in printed for each in shown)


def test_a_loop_without_an_end_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apart, "LIMIT_S", 2.0)
    path = tmp_path / "loops.py"
    path.write_text("framework = 'jax'\n\n\ndef silu(x):\n    while True:\n        pass\n")
    (found,) = verdicts([(FIRST, path)])
    assert (found.outcome, found.reason) == (Outcome.WRONG, "it did not finish within 2 seconds of processor time")
    assert "a loop does not end" in found.hint


def test_a_file_that_ends_its_process_is_wrong_and_the_next_one_is_judged(tmp_path: Path) -> None:
    ends, empty = tmp_path / "ends.py", tmp_path / "empty.py"
    ends.write_text(ENDS)
    empty.write_text("# nothing\n")
    asked: list[tuple[Exercise, Path]] = [(FIRST, ends), (FIRST, empty)]
    first, second = verdicts(asked)
    assert (first.outcome, first.reason) == (Outcome.WRONG, "the process ended with status 3")
    assert second.outcome is Outcome.EMPTY
