"""Every exercise of the course: its answer passes, wrong files get their reason, and the file with the gap is empty."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from exercises import edits
from kept_sources import kept_source
from thinning import covering_parts

from suite.exercises import catalogue
from suite.exercises.apart import verdicts
from suite.exercises.catalogue import Exercise
from suite.exercises.gap import emptied, gap
from suite.exercises.judge import Outcome

WRONG = {
    f"{path}/{name}": given for path in catalogue.PATHS for name, given in getattr(edits, path.upper(), {}).items()
}
EXERCISES = catalogue.exercises()


COUNTED = {name.replace("_", " ") for exercise in EXERCISES for name, _ in exercise.at_most}


def kind(reason: str) -> str:
    """The words of a reason before its first number or name: `does not use`. All counts are one kind."""
    words = re.split(r"[\d`:(]", reason)[0].strip()
    return "counts" if words in COUNTED else words


def chosen(path: str, *, every: bool) -> set[tuple[str, str]]:
    """The exercise and the reason of each wrong file of a path; else of few, which on all paths have each kind once."""
    found = {(name, edit[-1]) for name, given in WRONG.items() for edit in given}
    kinds = {name: {kind(reason) for each, reason in found if each == name} for name, _ in sorted(found)}
    exercises = covering_parts([*kinds], lambda name: {*kinds[name], path_of(name)})
    of_few = [(name, reason) for name, reason in sorted(found) if name in exercises]
    few = covering_parts(of_few, lambda each: {kind(each[1]), path_of(each[0])})
    return {each for each in (found if every else few) if path_of(each[0]) == path}


def path_of(name: str) -> str:
    return name.partition("/")[0]


def wrong_files(exercise: Exercise, reasons: set[tuple[str, str]]) -> list[tuple[Path, str]]:
    """The wrong files of an exercise that get one of the reasons, with that part of their reason."""
    text, found = exercise.answer.read_text(encoding="utf-8"), []
    for number, (old, new, reason) in enumerate(WRONG[exercise.name]):
        assert text.count(old) == 1, f"{exercise.name}: {old!r} stands {text.count(old)} times in its answer"
        if (exercise.name, reason) not in reasons:
            continue
        name = f"{exercise.name.replace('/', '_')}_{number}{exercise.answer.suffix}"
        found.append((kept_source(name, text.replace(old, new)), reason))
    return found


@pytest.mark.slow(seconds=40)
@pytest.mark.parametrize(
    ("paths", "every"),
    [
        pytest.param((*catalogue.PATHS,), False, id="some"),
        *(pytest.param((path,), True, id=path, marks=pytest.mark.thorough) for path in catalogue.PATHS),
    ],
)
def test_right_wrong_and_empty_files_get_their_verdicts(paths: tuple[str, ...], every: bool) -> None:
    """In `make test` few exercises, with a wrong file for each kind of reason; one process imports all frameworks."""
    asked, expected = [], []
    reasons = {each for path in paths for each in chosen(path, every=every)}
    with_reason = {name for name, _ in reasons}
    for each in [each for each in EXERCISES if each.name in with_reason]:
        asked += [(each, each.file), (each, each.answer)]
        expected += [(Outcome.EMPTY, f": {gap(each.file.read_text(encoding='utf-8')).task}"), (Outcome.PASS, "")]
        for file, reason in wrong_files(each, reasons):
            asked.append((each, file))
            expected.append((Outcome.WRONG, reason))
    found = verdicts(asked)
    differing = [
        f"{file.name}: {verdict.outcome}: {verdict.reason}; expected {outcome}: {reason}"
        for (_, file), verdict, (outcome, reason) in zip(asked, found, expected, strict=True)
        if verdict.outcome is not outcome or reason not in verdict.reason or bool(verdict.hint) != (outcome == "wrong")
    ]
    assert not differing, "\n".join(differing)


def test_fewer_wrong_files_get_every_kind_of_reason() -> None:
    few, all_ = ([chosen(path, every=every) for path in catalogue.PATHS] for every in (False, True))
    assert all(fewer and fewer < more for fewer, more in zip(few, all_, strict=True))
    kinds, all_kinds = ([kind(reason) for of_path in each for _, reason in of_path] for each in (few, all_))
    assert {*kinds} == {*all_kinds}
    assert len(kinds) <= len({*kinds}) + len(catalogue.PATHS)


def test_every_exercise_has_a_wrong_file() -> None:
    assert set(WRONG) == {each.name for each in EXERCISES}
    assert all(WRONG.values())


@pytest.mark.parametrize("exercise", EXERCISES, ids=lambda each: each.name)
def test_the_exercise_is_its_answer_without_the_gap(exercise: Exercise) -> None:
    answer = exercise.answer.read_text(encoding="utf-8")
    assert answer.count("TODO") == 1
    assert emptied(answer) == exercise.file.read_text(encoding="utf-8"), "python validation/exercise_files.py --write"
    found = gap(answer)
    assert found is not None
    assert found.code.strip()


def test_no_file_lies_beside_the_exercises_without_being_one() -> None:
    files = {path for name in catalogue.PATHS for path in (catalogue.FOLDER / name).iterdir() if path.is_file()}
    assert files == {each.file for each in EXERCISES}
    assert {each.stem for each in (catalogue.FOLDER / "references").glob("*.py")} == {
        each.operation for each in EXERCISES
    }


@pytest.mark.parametrize("exercise", EXERCISES, ids=lambda each: each.name)
def test_the_chapter_of_an_exercise_names_it(exercise: Exercise) -> None:
    assert f"`{exercise.name}`" in exercise.page.read_text(encoding="utf-8")
