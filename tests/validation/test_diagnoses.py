"""The program that counts right, missing and false diagnoses, and the counts in the document."""

from __future__ import annotations

import pytest
import wrong_kernels
from wrong_kernels import diagnoses

from suite import variants
from suite.core.paths import ROOT
from validation.diagnoses import FALSE, NONE, RIGHT, VALUES, DiagnosedKernel, main


@pytest.mark.parametrize(
    ("text", "expected", "outcome"),
    [
        ("as if b was read transposed (fits 100%)", "b was read transposed", RIGHT),
        ("as if a was read transposed (fits 100%)", "b was read transposed", FALSE),
        ("as if b was read transposed (fits 100%)", "", FALSE),
        ("", "b was read transposed", NONE),
    ],
)
def test_the_outcome_of_a_diagnosis(text: str, expected: str, outcome: str) -> None:
    assert DiagnosedKernel("matmul", "name", "about", text, expected, "").outcome == outcome


def test_one_operation(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--op", "sum", "--device", "cpu"]) == 0
    *_, last = capsys.readouterr().out.splitlines()
    assert (
        last == "passed: of 9 wrong kernels 9 right (at least 80%), 0 none, 0 false; 0 right kernels with a diagnosis"
    )


def test_the_document_has_the_counts_that_the_gallery_is_tested_for() -> None:
    text = " ".join((ROOT / "docs" / "diagnosis.md").read_text(encoding="utf-8").split())
    said = [
        bool(diagnoses.SAID[entry.name])
        for entry in wrong_kernels.entries()
        if entry.wrong.verdict in VALUES and not entry.wrong.gpu and variants.find(entry.operation)
    ]
    right, none = said.count(True), said.count(False)
    assert f"Of {len(said)} wrong kernels, {right} are named rightly, {none} not at all and none falsely" in text
