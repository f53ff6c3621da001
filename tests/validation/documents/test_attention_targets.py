"""The lists of shapes are those that the program writes; ratios are judged against their targets."""

from __future__ import annotations

import csv

import pytest

from suite.core.paths import ROOT
from suite.results.row import Mode, Row, Status
from validation.documents import attention_targets as targets

FULL = (4, 16, 16, 4096, 4096, 128)


def row(implementation: str, us: float, ratio: float, *, vendor: bool = False, case: tuple[int, ...] = FULL) -> Row:
    return Row(
        operation="attention",
        case=targets.name(case, False),
        dtype="bfloat16",
        precision="ieee",
        implementation=implementation,
        execution=Mode.NATIVE,
        status=Status.OK,
        device_us=us,
        vs_best=ratio,
        vendor=vendor,
    )


@pytest.mark.parametrize("operation", ["attention", "attention_grad"])
def test_the_list_of_shapes_is_what_the_program_draws(operation: str) -> None:
    with (ROOT / "examples" / f"{operation}_shapes.csv").open(newline="") as file:
        head, *rows = csv.reader(file)
    assert tuple(head) == targets.DIMS
    assert [tuple(map(int, each)) for each in rows] == targets.shapes(operation)


def test_three_digits_of_a_ratio_count() -> None:
    found = targets.Measured(FULL, False, {"a": 1.0496, "b": 1.0494}, {"a": 1.05, "b": 1.05, "c": 0.9})
    assert found.missed == {"b": 1.05, "c": 0.9}


@pytest.mark.parametrize(
    ("shape", "causal", "group"),
    [
        (FULL, False, "D=128"),
        (FULL, True, "D=128 causal"),
        ((4, 32, 8, 4096, 4096, 128), True, "grouped heads causal"),
        ((1, 16, 16, 3000, 3000, 128), False, "other lengths"),
        ((64, 32, 8, 1, 8192, 128), False, "one query"),
        (targets.drawn(True)[0], True, "drawn causal"),
    ],
)
def test_the_group_of_a_case(shape: tuple[int, ...], causal: bool, group: str) -> None:
    assert targets.Measured(shape, causal, {}, {}).group == group


def test_the_best_line_is_one_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [row("torch/cudnn", 100.0, 1.0, vendor=True), row("triton/gluon", 125.0, 0.8), row("cuda/auto", 80.0, 1.25)]
    found = {targets.name(FULL, False): {each.implementation: each for each in rows}}
    monkeypatch.setattr(targets, "measured", lambda _: found)
    (case,) = targets.cases("attention", targets.forward_targets)
    assert case.ratios == {"triton/gluon": 0.8, "cuda/auto": 1.25, "best": 1.25}
    assert case.missed == {targets.TRITON: 0.85, "triton/gluon": 1.08, "jax/pallas": 0.95}
    assert ["triton/gluon", "D=128, S=4096", "0.800-0.800", "1.08"] in targets.missed_by_group([case])
    ((group, *cells),) = targets.grouped("attention", [case])
    assert group == "D=128: 1"
    assert dict(zip((*targets.OURS["attention"], "best"), cells[:5], strict=True)) == {
        targets.TRITON: "",
        "triton/gluon": "0.800-0.800",
        "cuda/auto": "1.250-1.250",
        "jax/pallas": "",
        "best": "1.250-1.250",
    }


def test_drawn_shapes_are_told_by_their_mean(monkeypatch: pytest.MonkeyPatch) -> None:
    shapes = targets.drawn(True)[:2]
    ratios = dict(zip(shapes, (0.5, 2.0), strict=True))
    found = {targets.name(s, False): {"triton/gluon": row("triton/gluon", 1.0, r, case=s)} for s, r in ratios.items()}
    monkeypatch.setattr(targets, "measured", lambda _: found)
    assert next(targets.summary("attention")).startswith(
        "- Drawn shapes: best of ours 1.000 in the geometric mean of 2"
    )
