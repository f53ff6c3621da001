"""The two times of rows, and the pairs that change places between them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from suite.results.render.columns import CaseTable
from suite.results.row import Row, Status
from suite.results.two_times import order_differs


def row(name: str, us: float, sustained: float | None, width: float = 0.002, **more: object) -> Row:
    ends = {"device_us_low": us * (1 - width), "device_us_high": us * (1 + width)}
    if sustained is not None:
        ends |= {"sustained_us_low": sustained * (1 - width), "sustained_us_high": sustained * (1 + width)}
    return Row("matmul", "M=1", "bfloat16", "ieee", name, device_us=us, sustained_us=sustained, **ends, **more)  # type: ignore[arg-type]


FIRST, SECOND = row("cuda", 170.0, 230.0), row("triton", 172.0, 220.0)


def test_a_pair_that_changes_places_has_a_sentence_on_the_page() -> None:
    (text,) = order_differs([FIRST, SECOND])
    assert text.startswith("the order differs: cuda is faster than triton by device_us (170 and 172 us)")
    assert text.endswith("and slower by sustained_us (230 and 220 us)")
    assert order_differs([SECOND, FIRST]) == [text]
    assert text in CaseTable.from_rows([FIRST, SECOND]).remarks


@pytest.mark.parametrize(
    "other",
    [
        row("triton", 172.0, 240.0),
        row("triton", 172.0, None),
        row("triton", 170.3, 220.0),
        row("triton", 172.0, 229.8),
        replace(SECOND, noisy=True),
        replace(SECOND, device="cpu"),
        replace(SECOND, status=Status.WRONG),
        replace(SECOND, sustained_us_low=None),
    ],
    ids=["same order", "one time", "level alone", "level under load", "noisy", "another device", "wrong", "few"],
)
def test_no_sentence_without_evidence(other: Row) -> None:
    assert order_differs([FIRST, other]) == []
